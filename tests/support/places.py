"""Where the tests' data and the project are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
COLLECTION = ROOT / "ansible_collections/gpuprep/gpu"
SUPPORT = TESTS / "support"
CASES = TESTS / "cases"
GOLDEN = TESTS / "golden"
