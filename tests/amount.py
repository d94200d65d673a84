"""How much the tests try: `make test` takes minutes, `make test-all` (GPUPREP_TEST_ALL=1) hours."""

from __future__ import annotations

import os

ALL = os.environ.get("GPUPREP_TEST_ALL") == "1"
