"""gpuprep: provision, validate and watch GPU machines."""

__version__ = "0.1.0"
