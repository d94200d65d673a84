"""On a machine with a GPU and PyTorch: each matrix product of a recorded run beside PyTorch's own, timed now.

    gpuprep report last --format json > run.json
    python tests/support/torchratios.py run.json

Run it straight after `gpuprep validate`, so that both saw the same machine. PyTorch's products are timed by the probe's
own rule: after a rest, in a burst that ends before the power cap acts, repeated until one is steady. It changes no
setting of the GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpuprep.agent.probes.burst import Rule, best_burst

REST_SECONDS = 0.2
LEAD_SECONDS = 0.004
INT8_SPREAD = 32.0  # standard deviation, as the probe has it: more bits that change cost power, and so speed
FLOATS = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32, "fp64": torch.float64,
}  # fmt: skip


def product(dtype: str, m: int, n: int, k: int) -> Callable[[], object] | None:
    """One call of PyTorch for this product, with its output allocated; None where PyTorch has none."""
    if dtype in FLOATS:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        a = torch.randn(m, k, device="cuda", dtype=FLOATS[dtype])
        b = torch.randn(n, k, device="cuda", dtype=FLOATS[dtype]).t()
        out = torch.empty(m, n, device="cuda", dtype=FLOATS[dtype])
        return lambda: torch.mm(a, b, out=out)
    if dtype == "int8":
        a = whole_numbers(m, k)
        b = whole_numbers(n, k).t()
        whole = torch.empty(m, n, device="cuda", dtype=torch.int32)
        return lambda: torch._int_mm(a, b, out=whole)
    if dtype == "fp8":
        a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return None


def whole_numbers(rows: int, columns: int) -> torch.Tensor:
    return (torch.randn(rows, columns, device="cuda") * INT8_SPREAD).round().clamp(-127, 127).to(torch.int8)


def milliseconds(call: Callable[[], object], count: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in itertools.pairwise(events)]


def best(call: Callable[[], object]) -> float:
    """Milliseconds of one product, by the probe's own rule for a burst."""
    lead = max(1, int(LEAD_SECONDS * 1000 / min(milliseconds(call, 3))))

    def begin() -> None:
        time.sleep(REST_SECONDS)
        milliseconds(call, lead)

    return best_burst(begin, lambda count: milliseconds(call, count), Rule()).milliseconds


def rows(record: dict[str, Any]) -> list[tuple[str, float, float]]:
    """(product, microseconds of the probe, microseconds of PyTorch) of the first GPU."""
    probe = next(one for one in record["measurements"] if one["probe"] == "gemm")
    found = []
    for gemm in probe["values"]["gpus"][0]["gemms"]:
        name = f"{gemm['dtype']} {gemm['m']}x{gemm['n']}x{gemm['k']}"
        if gemm.get("error") or gemm.get("accumulate") == "fp16":
            continue
        try:
            call = product(gemm["dtype"], gemm["m"], gemm["n"], gemm["k"])
            if call is not None:
                found.append((name, float(gemm["microseconds"]), best(call) * 1000))
        except RuntimeError as error:
            print(f"{name}: PyTorch: {str(error).splitlines()[0]}")
        torch.cuda.empty_cache()
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        found = rows(json.load(file))
    for name, ours, theirs in found:
        print(f"{name:32} {ours:10.1f} us, PyTorch {theirs:10.1f} us: {theirs / ours:.3f} of PyTorch's speed")
    if found:
        print(f"lowest: {min(theirs / ours for _, ours, theirs in found):.3f}")


if __name__ == "__main__":
    main()
