"""`python -m gpuprep.cli` is `gpuprep`."""

from gpuprep.cli import main

main()
