"""Pages of profiles that have all that the views of iterations, time and memory show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import synthetic

from gpuprep.trace.model import profile
from gpuprep.trace.page import html
from gpuprep.trace.profile import Profile
from gpuprep.trace.reading import read
from gpuprep.trace.tables import document

STEP = 1_000_000  # ns
EVIL = '<img src=x onerror="window.evil=1"></script><script>window.evil=1</script>'
TABLES = ("summary", "iterations", "ops", "op_types", "kernels", "modules", "devices")


def training(steps: int = 6) -> synthetic.Kineto:
    """synthetic.training with what it lacks: two GPUs, modules, annotations, graphs, an op inside of itself, memory.

    Every step has two graph launches outside of every op, and one kernel that only the step itself is around. The first
    kernel of all was launched before the profile. Names are hostile.
    """
    trace = synthetic.training(steps=steps)
    trace.launch(None, f"{EVIL}_early", 1_000, 2_000, device=1, stream=3)
    for step in range(steps):
        zero = step * STEP
        trace.python("nn.Module: Net_0", zero + 40_000, 260_000, args={"Python module id": 0})
        trace.python(f"nn.Module: {EVIL}_0", zero + 45_000, 100_000, args={"Python module id": 1})
        trace.annotation("Optimizer.step#SGD.step", zero + 890_000, 60_000)
        trace.annotation(f"phase {EVIL} {step}", zero + 2_000, 300_000)
        trace.op(EVIL, zero + 300_000, 80_000, shapes=[[64, 63]], dtypes=["c10::Half"])
        trace.op(EVIL, zero + 305_000, 60_000, shapes=[[64, 63]], dtypes=["c10::Half"])  # inside of itself
        trace.launch(zero + 310_000, f"{EVIL}_kernel", zero + 330_000, 70_000 + 1_000 * step, device=1, stream=20)
        trace.launch(zero + 320_000, "ampere_fp16_s16816gemm_fp16_128x128", zero + 405_000, 30_000, device=1, stream=20)
        last, trace.external = trace.external, 0  # no op is told to be around these
        graph = trace.launch(zero + 960_000, "graph_kernel_a", zero + 962_000, 4_000, call="cudaGraphLaunch")
        trace.launch(zero + 960_000, "graph_kernel_b", zero + 967_000, 5_000, correlation=graph)
        trace.launch(zero + 975_000, "lonely_kernel", zero + 980_000, 3_000 + step)
        trace.external = last
        for at, size, total in (
            (10_000, 3_000, 3_000 + step),
            (200_000, 7_000, 10_000 + step),
            (800_000, -7_000, 3_000),
        ):
            trace.memory(zero + at, size << 20, total << 20, (total + 512) << 20)
    return trace


def crowded() -> synthetic.Kineto:
    """Forty steps with 2,000 ops that launch nothing."""
    trace = training(40)
    for step in range(40):
        for number in range(50):
            trace.op("aten::view", step * STEP + 700_000 + number * 1000, 100 + (step * 37 + number) % 700)
    return trace


def opened(path: Path, *, key_op: str = "") -> Profile:
    return profile(read(path), key_op=key_op)


def write(folder: Path, linked: Profile) -> str:
    """The page of a profile; its address."""
    page = folder / "page.html"
    page.write_text(html(linked, document(linked)), encoding="utf-8")
    return page.as_uri()


def told(linked: Profile, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
    """The tables that Python makes."""
    made: dict[str, Any] = msgspec.to_builtins(document(linked, start, stop))
    return {name: made["file"]["devices"] if name == "devices" else made[name] for name in TABLES}


# Of each choice all tables that the page makes.
AGGREGATE = """([choices, names]) => choices.map(choice => {
  const made = tracePage.state.data.aggregate(choice);
  return Object.fromEntries(names.map(name => [name, made[name]]));
})"""


def differences(python: Any, page: Any, where: str = "") -> Iterator[str]:
    """Floats may differ in their last digits: the same sums of whole nanoseconds were divided in another order."""
    if isinstance(python, dict):
        for key, value in python.items():
            if key not in page:
                yield f"{where}.{key} is not in the page"
            else:
                yield from differences(value, page[key], f"{where}.{key}")
    elif isinstance(python, (list, tuple)):
        if len(python) != len(page):
            yield f"{where}: {len(python)} and {len(page)} rows"
        for number, (one, other) in enumerate(zip(python, page, strict=False)):
            yield from differences(one, other, f"{where}[{number}]")
    elif isinstance(python, float) and isinstance(page, (int, float)):
        if not math.isclose(python, page, rel_tol=1e-12, abs_tol=1e-12):
            yield f"{where}: {python} and {page}"
    elif python != page:
        yield f"{where}: {python!r} and {page!r}"


def key_ops(linked: Profile, most: int = 4) -> list[str]:
    """Ops and annotations that may be key ops: the one with the most GPU time, and some that are called seldom."""
    lines = [line for line in document(linked).ops if line.calls]
    some = lines[:1] + [line for line in lines if line.calls <= 4 * len(linked.iterations.names)][:most]
    names = {linked.trace.names[name] for name in linked.trace.ops.name.tolist()}
    return [name for name in dict.fromkeys(line.type for line in some) if name in names]
