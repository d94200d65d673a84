"""The matrix products of simulated GPUs: the library is really loaded, the figures come from a model.

Rules and values are as on hardware; only the durations come from the model.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, List, Optional, Tuple, Union

from gpuprep.agent.compute import libraries
from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.gpu.nvml import Gpu, Nvml
from gpuprep.agent.probereports import measured_each
from gpuprep.agent.probes import simulated
from gpuprep.agent.probes.burst import Rule, burst
from gpuprep.agent.probes.gemm import QUICK_RULE, bindings
from gpuprep.agent.probes.gemmalgorithm import described
from gpuprep.agent.probes.gemmtypes import BYTES, TYPES, DataType, Shape, asked, default, main_type, tiles
from gpuprep.agent.probes.gemmvalues import Pace, figures, gpu_values, product_values
from gpuprep.agent.probes.gpuforms import named, other_processes
from gpuprep.records import Missing, to_json_value

# What cuBLASLt takes there for large products: (tile, stages), and for FP32 and FP64.
TILES = {"volta": (128, 256), "turing": (128, 128), "ampere": (256, 128), "hopper": (128, 256)}
SIMPLE_TILE = (128, 128)
READINGS, SUSTAINED_READINGS = 4, 20


def measure(arguments: Dict[str, Any], toolkit: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """Values as in docs/records.md; arguments as for probes.gemm."""
    quick = bool(arguments.get("quick"))
    version = libraries.load_cublaslt(toolkit["version"].split(".")[0])
    if isinstance(version, Missing):
        return version
    used = {
        "quick": quick,
        "libraries": to_json_value(libraries.loaded({"cublasLt": version})),
        "toolkit": toolkit,
        "bindings": to_json_value(bindings()),
    }
    measured_each(used)
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing):
            return gpus
        models = {model.index: model for model in simulated.gpus()}
        rows = [_gpu(gpu, models[gpu.index], arguments, Pace(gpu.index, len(gpus))) for gpu in gpus]
        living = [(gpu, models[gpu.index]) for gpu in gpus if not models[gpu.index].lost]
        together = None if quick or len(living) < 2 else _together(living, arguments)
    return {**used, "gpus": to_json_value(rows), "together": to_json_value(together)}


def _gpu(gpu: Gpu, model: Any, arguments: Dict[str, Any], pace: Pace) -> Dict[str, Any]:
    row = gpu_values(gpu.facts(), other_processes(gpu), model.sms, model.l2_mib)
    row.update(named(model))
    if model.lost:
        row["error"] = "GPU is lost"
    pace.known(row)
    if model.lost:
        return row
    kinds = _kinds(model)
    main = main_type(kinds, arguments.get("main_dtype"))
    pace.types = len(kinds)
    for done, kind in enumerate(sorted(kinds, key=lambda kind: kind.key != main.key)):
        pace.done = done
        shapes = _shapes(model, kind, arguments)
        for number, shape in enumerate(shapes):
            pace.tell(f"{kind.dtype} {shape.m}x{shape.n}x{shape.k}")
            values = _product(gpu, model, kind, shape, QUICK_RULE if arguments.get("quick") else Rule())
            if number == 0 and kind.key == main.key and not arguments.get("quick"):
                values["sustained"] = _sustained(gpu, model, kind, values["tflops"])
            row["gemms"].append(values)
            pace.measured(row["gemms"])
    return row


def _kinds(model: Any) -> Tuple[DataType, ...]:
    return tuple(kind for kind in TYPES if not isinstance(model.tflops(kind.dtype, kind.accumulate), Missing))


def _shapes(model: Any, kind: DataType, arguments: Dict[str, Any]) -> List[Shape]:
    wanted = asked(arguments.get("shapes"), kind.dtype)
    if wanted:
        return wanted
    shapes = default(model.tflops(kind.dtype, kind.accumulate))
    return shapes[1:2] if arguments.get("quick") else shapes


def _product(gpu: Gpu, model: Any, kind: DataType, shape: Shape, rule: Rule) -> Dict[str, Any]:
    tile = SIMPLE_TILE if kind.dtype in ("fp32", "fp64") else TILES.get(model.architecture, SIMPLE_TILE)
    waves = tiles(shape, tile) / model.sms
    share = waves / math.ceil(waves)  # the last wave keeps only some of the SMs busy
    numbers = itertools.count()

    def time_some(count: int) -> List[float]:
        rates = [_tflops(model, kind, shape, share, number) for number in itertools.islice(numbers, count)]
        return [shape.operations / rate / 1e9 for rate in rates]

    with model.load(kind.dtype), Sampler([gpu]) as sampler:
        timed_burst = burst(time_some, rule)
        sampler.wait(READINGS)
    algorithm = described(f"TILE_{tile[0]}x{tile[1]}", "STAGES_64xAUTO", 1, round(waves, 3))
    values = product_values(kind, shape, timed_burst, {**algorithm, "candidates": 8})
    values.update(figures(sampler, gpu.index), exact=True, max_relative_error=kind.tolerance / 10)
    return values


def _tflops(model: Any, kind: DataType, shape: Shape, share: float, sample: int) -> float:
    """TFLOPS by the model, or by the memory if that is slower."""
    m, n, k = shape
    moved = (m * k + k * n) * BYTES[kind.inputs] + m * n * BYTES[kind.output]
    roof = shape.operations / moved * model.memory_gb_per_s("read", sample) / 1e3
    return float(min(model.tflops(kind.dtype, kind.accumulate, sample) * share, roof))


def _sustained(gpu: Gpu, model: Any, kind: DataType, tflops: float) -> Dict[str, Any]:
    """Values of the sustained load. The model has no heating, so the figure is the same; readings take a second."""
    with model.load(kind.dtype), Sampler([gpu]) as sampler:
        sampler.wait(SUSTAINED_READINGS)
    telemetry = sampler.telemetry(gpu.index)
    return {"seconds": telemetry["seconds"][-1], "tflops": tflops, **figures(sampler, gpu.index)}


def _together(living: List[Tuple[Gpu, Any]], arguments: Dict[str, Any]) -> Optional[List[Dict[str, Any]]]:
    rows = []
    for gpu, model in living:
        kind = main_type(_kinds(model), arguments.get("main_dtype"))
        with model.load(kind.dtype), Sampler([gpu]) as sampler:
            sampler.wait(READINGS)
        rows.append(
            {
                "index": gpu.index,
                "dtype": kind.dtype,
                "tflops": round(model.tflops(kind.dtype, kind.accumulate, 1), 2),
                "graphics_clock_mhz": sampler.mean(gpu.index, "graphics_clock_mhz"),
            }
        )
    return rows
