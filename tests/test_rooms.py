"""The order of gpuprep's modules, beside the import contracts in pyproject.toml."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp  # what import-linter reads the imports with


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count, too. A circle ends in CycleError, which names its modules."""
    graph = grimp.build_graph("gpuprep", cache_dir=None)
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()
