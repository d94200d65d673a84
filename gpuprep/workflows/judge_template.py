"""`gpuprep judge --template csv`: a file of figures to fill in."""

from __future__ import annotations

from gpuprep import catalogue
from gpuprep.catalogue import Model
from gpuprep.desired import loading
from gpuprep.workflows import figures_csv, record_file


def text(form: str, profile: str | None) -> str:
    """The file to fill in, as "csv" or "json"; for the GPU of `profile` (a name or a path) if that is one model."""
    model, gpu = _gpu(profile)
    return figures_csv.template(model, gpu) if form == "csv" else record_file.template(model, gpu)


def _gpu(profile: str | None) -> tuple[Model | None, str]:
    """(the model, the name of its board). The name is "" if the model has several boards: only the user knows which."""
    models = loading.load(profile).gpus if profile is not None else ()
    if len(models) != 1:
        return None, ""
    model = catalogue.models()[models[0]]
    names = [board.nvml_names for board in catalogue.boards().values() if board.model.key == model.key]
    return model, names[0][0] if len(names) == 1 and names[0] else ""
