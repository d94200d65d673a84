"""Filters of the CUDA role."""

from __future__ import annotations

from ansible_collections.gpuprep.gpu.plugins.module_utils.packagenames import of_toolkit


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {"cuda_of_version": of_toolkit}
