"""The profile of machines that present another system."""

from __future__ import annotations

# CUDA's stub has an nvcc that compiles nothing, so that cells without a toolkit can pass whole.
PROFILE = """\
extends: base
description: one cell of the matrix of systems
driver: {{source: {source}, version: "{version}"}}
cuda: {{version: "{cuda}"}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
waivers:
  - {{finding: cuda.compiles, hosts: "*", justification: a stub compiles nothing, expires: 2099-01-01}}
  - {{finding: cupti.counters, hosts: "*", justification: a stub is empty, expires: 2099-01-01}}
"""
