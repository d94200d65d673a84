"""Writes torch_flops.json: what torch's own flop counter says of ops, beside the inputs as a profile records them.

    python tests/support/torch_flops.py        in an environment with torch 2.5 or newer; no GPU is needed

The tests compare with the file, so that they need no torch.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from places import TESTS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

OUT = TESTS / "traces" / "torch_flops.json"
NAMES = {torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.float64: "double"}
found: list[dict[str, Any]] = []
aten = torch.ops.aten


def shown(value: Any) -> tuple[list[int], str, list[int], str]:
    """Input Dims, Input type, Input Strides, Concrete Inputs of one input, as Kineto writes them."""
    if isinstance(value, torch.Tensor):
        return list(value.shape), NAMES.get(value.dtype, str(value.dtype)), list(value.stride()), ""
    if value is None:
        return [], "", [], ""
    return [], "ScalarList" if isinstance(value, (list, tuple)) else "Scalar", [], str(value)


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in flop_registry:
            keep(func, args, kwargs or {}, flop_registry[packet](*args, **(kwargs or {}), out_val=out))
        return out


def keep(func: Any, args: Any, kwargs: Any, flops: int) -> None:
    """With the defaults of the schema, as the profiler records them."""
    every = list(args)
    for at, argument in enumerate(func._schema.arguments[len(args) :], start=len(args)):
        every.append(kwargs.get(argument.name, argument.default_value))
        assert at == len(every) - 1
    rows = [shown(one) for one in every]
    entry = {
        "op": func._schema.name,
        "dims": [row[0] for row in rows],
        "types": [row[1] for row in rows],
        "strides": [row[2] for row in rows],
        "concrete": [row[3] for row in rows],
        "flops": int(flops),
    }
    if entry not in found:
        found.append(entry)


def tensor(*sizes: int, dtype: torch.dtype = torch.float16, grad: bool = False) -> torch.Tensor:
    return torch.empty(*sizes, dtype=dtype, device="meta", requires_grad=grad)


def products() -> None:
    for m, n, k in ((1, 1, 1), (4096, 4096, 4097), (7, 5, 3), (128, 1000, 2048), (1, 4096, 4096), (0, 8, 8)):
        aten.mm(tensor(m, k), tensor(k, n))
        aten.mm(tensor(k, m).t(), tensor(n, k).t())
        aten.addmm(tensor(n), tensor(m, k), tensor(k, n))
        aten.bmm(tensor(6, m, k), tensor(6, k, n))
        aten.baddbmm(tensor(6, m, n), tensor(6, m, k), tensor(6, k, n))
    torch.nn.functional.linear(tensor(8, 77, 512, grad=True), tensor(2048, 512, grad=True)).sum().backward()
    torch.matmul(tensor(4, 1, 6, 8), tensor(3, 8, 5))
    e4m3 = torch.float8_e4m3fn
    a, b = tensor(64, 128, dtype=e4m3), tensor(96, 128, dtype=e4m3).t()
    one = torch.empty((), dtype=torch.float32, device="meta")
    aten._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)


def convolutions() -> None:
    cases = [
        # batch, in, out, image, filter, stride, padding, dilation, groups
        (32, 3, 64, (224, 224), (7, 7), 2, 3, 1, 1),
        (32, 64, 64, (56, 56), (1, 1), 1, 0, 1, 1),
        (2, 64, 128, (57, 55), (3, 5), (2, 1), (1, 2), (1, 2), 1),
        (4, 32, 32, (28, 28), (3, 3), 1, 1, 1, 32),
        (4, 32, 64, (28, 28), (3, 3), 2, 1, 1, 4),
        (3, 16, 8, (100,), (9,), 3, 4, 2, 1),
        (2, 4, 6, (9, 10, 11), (3, 3, 3), 1, 1, 1, 2),
        (1, 8, 8, (5, 5), (5, 5), 1, 0, 1, 1),
    ]
    for batch, given, out, image, size, stride, padding, dilation, groups in cases:
        for training in (True, False):
            kind = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}[len(size)]
            layer = kind(given, out, size, stride, padding, dilation, groups, device="meta", dtype=torch.float16)
            x = tensor(batch, given, *image, grad=training)
            layer(x).sum().backward()
            if dilation == 1:
                back = {1: torch.nn.ConvTranspose1d, 2: torch.nn.ConvTranspose2d, 3: torch.nn.ConvTranspose3d}[
                    len(size)
                ]
                up = back(given, out, size, stride, padding, 0, groups, device="meta", dtype=torch.float16)
                up(tensor(batch, given, *image, grad=training)).sum().backward()
    func = aten.cudnn_convolution.default
    args = (tensor(2, 4, 9, 9), tensor(6, 4, 3, 3), [1, 1], [2, 2], [1, 1], 1, False, False, True)
    keep(func, args, {}, flop_registry[func._overloadpacket](*args, out_val=tensor(2, 6, 5, 5)))


def attention() -> None:
    shapes = [(2, 8, 128, 128, 8, 64), (1, 16, 77, 559, 16, 128), (4, 32, 256, 256, 8, 128), (2, 4, 1, 1024, 4, 64)]
    for batch, heads, queries, keys, fewer, size in shapes:
        q, k, v = (
            tensor(batch, heads, queries, size),
            tensor(batch, fewer, keys, size),
            tensor(batch, fewer, keys, size),
        )
        out, total = tensor(batch, heads, queries, size), torch.empty(batch, heads, queries, device="meta")
        for op in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"):
            func = getattr(aten, op).default
            args: tuple[Any, ...] = (q, k, v) if "flash" in op else (q, k, v, None, False)
            keep(func, args, {}, flop_registry[func._overloadpacket](*args, out_val=None))
        func = aten._scaled_dot_product_flash_attention_backward.default
        seed = torch.empty((), dtype=torch.int64, device="meta")
        args = (out, q, k, v, out, total, None, None, queries, keys, 0.0, True, seed, seed)
        keep(func, args, {}, flop_registry[func._overloadpacket](*args, out_val=None))


if __name__ == "__main__":
    with Counting():
        products()
        convolutions()
        attention()
    lines = ",\n".join(json.dumps(one) for one in found)
    OUT.write_text(f'{{"torch": "{torch.__version__}", "ops": [\n{lines}\n]}}\n', encoding="utf-8")
    print(len(found), "ops")
