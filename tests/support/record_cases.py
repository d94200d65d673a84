"""What record_pairs.py records: small trainings with one fault each, and the same without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from record_models import Attention, ConvStack, Elementwise, Gpt, ManyKinds, Mlp, PackedPictures, ResNet, Scale
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

Step = Callable[[], None]
Build = Callable[[Scale], Step]


@dataclass(frozen=True)
class Case:
    name: str
    build: Build
    tf32: bool = True  # matrix products and convolutions in TF32 where their data is float
    active: int = 3  # steps that are profiled
    stacks: bool = False
    memory: bool = False
    averages: bool = False  # put torch's own key_averages() into the manifest
    flops: bool = False  # put torch's own count of floating-point operations of one step into the manifest
    cuda_only: bool = False


@dataclass(frozen=True)
class Pair:
    before: str
    after: str
    rule: str
    change: str


@dataclass(frozen=True)
class Group:
    """Cases that are timed in turns, so that a clock that moves meets all of them."""

    cases: tuple[Case, ...]
    pairs: tuple[Pair, ...] = ()
    in_turns: bool = True
    seconds: float = 4.0  # about what building and timing takes; a group is left out if the time is not there
    warm_up: int = 3  # steps before the timing and before the profile


def _autocast(scale: Scale, on: bool) -> AbstractContextManager[object]:
    return torch.autocast(scale.device.type, dtype=torch.bfloat16) if on else nullcontext()


def _adam(model: nn.Module, scale: Scale) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=scale.device.type == "cuda")


def _gpt(
    *, amp: bool = False, half: bool = False, inner: int = 4096, vocabulary: int = 50304, layers: int = 4
) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(1024, 32)
        rows, length = scale.of(8, 2), scale.of(512, 16)
        words = vocabulary if not scale.tiny else 257
        model = Gpt(
            layers=layers if not scale.tiny else 1,
            width=width,
            heads=scale.of(16, 2),
            inner=inner if not scale.tiny else 61,
            vocabulary=words,
        ).to(scale.device)
        if half:
            model = model.bfloat16()
        optimizer = _adam(model, scale)
        tokens = torch.randint(0, words, (rows, length + 1), device=scale.device)

        def step() -> None:
            optimizer.zero_grad()
            with _autocast(scale, amp):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()

        return step

    return build


def _pictures(scale: Scale, rows: int, side: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 3, side, side, device=scale.device)
    return x, torch.randint(0, 10, (rows,), device=scale.device)


def _resnet(*, amp: bool = False, channels_last: bool = False) -> Build:
    def build(scale: Scale) -> Step:
        order = torch.channels_last if channels_last else torch.contiguous_format
        model = ResNet((1, 1, 1, 1) if scale.tiny else (3, 4, 6, 3)).to(scale.device, memory_format=order)
        x, y = _pictures(scale, scale.of(64, 2), scale.of(224, 32))
        x = x.contiguous(memory_format=order)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)

        def step() -> None:
            optimizer.zero_grad()
            with _autocast(scale, amp):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        return step

    return build


def _small_mlp(scale: Scale) -> tuple[nn.Module, Tensor, torch.optim.Optimizer]:
    model = Mlp(depth=scale.of(24, 2), width=128, norm=True).to(scale.device)
    return model, torch.randn(64, 128, device=scale.device), torch.optim.SGD(model.parameters(), lr=1e-3)


def launch_eager(scale: Scale) -> Step:
    model, x, optimizer = _small_mlp(scale)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def graphed(step: Step) -> Step:
    """The whole step captured in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def launch_graph(scale: Scale) -> Step:
    return graphed(launch_eager(scale))


def launch_compiled(scale: Scale) -> Step:
    model, x, optimizer = _small_mlp(scale)
    compiled = torch.compile(model)

    def step() -> None:
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()

    return step


def _elementwise(*, compiled: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(4096, 32)
        model = Elementwise(width, 2).to(scale.device).bfloat16()
        call = torch.compile(model) if compiled else model
        x = torch.randn(scale.of(8192, 16), width, device=scale.device, dtype=torch.bfloat16)

        def step() -> None:
            model.zero_grad()
            call(x).square().mean().backward()

        return step

    return build


def _forever(loader: DataLoader[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader


def _loader(*, workers: int) -> Build:
    def build(scale: Scale) -> Step:
        rows = scale.of(32, 4)
        pictures = PackedPictures(scale.of(224, 16), rows * 2000)
        loader = DataLoader(
            pictures, batch_size=rows, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        batches = _forever(loader)
        model = ConvStack(depth=scale.of(12, 2), channels=scale.of(64, 4), bias=False).to(scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            x, y = next(batches)
            x, y = x.to(scale.device), y.to(scale.device)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step

    return build


def _batch_sizes(scale: Scale) -> tuple[int, int]:
    return scale.of(8192, 32), scale.of(2048, 16)  # 64 MiB of float32


def _copies(*, pinned: bool) -> Build:
    """The batch lies ready in the CPU's memory and is copied in each step, on the stream that calculates."""

    def build(scale: Scale) -> Step:
        rows, width = _batch_sizes(scale)
        batches = [torch.randn(rows, width) for _ in range(2)]
        if pinned and scale.device.type == "cuda":
            batches = [batch.pin_memory() for batch in batches]
        model = Mlp(depth=scale.of(6, 2), width=width).to(scale.device)
        count = 0

        def step() -> None:
            nonlocal count
            x = batches[count % 2].to(scale.device, non_blocking=pinned)
            count += 1
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return build


def copies_ahead(scale: Scale) -> Step:
    """The next batch is copied on a stream of its own while this one is calculated with."""
    rows, width = _batch_sizes(scale)
    batches = [torch.randn(rows, width).pin_memory() for _ in range(2)]
    places = [batch.to(scale.device) for batch in batches]
    model = Mlp(depth=scale.of(6, 2), width=width).to(scale.device)
    side, here = torch.cuda.Stream(), torch.cuda.current_stream()
    count = 0

    def step() -> None:
        nonlocal count
        this, then = count % 2, (count + 1) % 2
        count += 1
        here.wait_stream(side)  # this batch has come
        side.wait_stream(here)  # the other place is no longer read
        with torch.cuda.stream(side):
            places[then].copy_(batches[then], non_blocking=True)
        model.zero_grad()
        model(places[this]).square().mean().backward()

    return step


def _watched(*, item: bool) -> Build:
    """Looks at the size of what each layer gives; with `item` it fetches the number at once, and the GPU runs dry."""

    def build(scale: Scale) -> Step:
        width, depth = scale.of(2048, 16), scale.of(16, 2)
        layers = [nn.Linear(width, width, device=scale.device, dtype=torch.bfloat16) for _ in range(depth)]
        x = torch.randn(scale.of(2048, 8), width, device=scale.device, dtype=torch.bfloat16)
        seen: list[float | Tensor] = []

        def step() -> None:
            seen.clear()
            y = x
            for layer in layers:
                layer.zero_grad()
                y = F.gelu(layer(y)) + y
                size = y.detach().abs().mean()
                seen.append(size.item() if item else size)
            y.square().mean().backward()

        return step

    return build


def _optimizer(*, fused: bool) -> Build:
    def build(scale: Scale) -> Step:
        model = Mlp(depth=scale.of(40, 2), width=256).to(scale.device)
        kind = {"fused": True} if fused else {"foreach": False}
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **kind)
        x = torch.randn(256, 256, device=scale.device)

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def _attention(*, math_only: bool) -> Build:
    def build(scale: Scale) -> Step:
        width, length = scale.of(1024, 16), scale.of(2048, 16)
        layers = [Attention(width, scale.of(16, 2), math_only=math_only, causal=False) for _ in range(scale.of(3, 1))]
        model = nn.Sequential(*layers).to(scale.device).bfloat16()
        x = torch.randn(scale.of(4, 2), length, width, device=scale.device, dtype=torch.bfloat16)

        def step() -> None:
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return build


def _created(*, on_device: bool) -> Build:
    def build(scale: Scale) -> Step:
        rows, width = scale.of(2048, 16), scale.of(2048, 16)
        model = Mlp(depth=scale.of(6, 2), width=width).to(scale.device)
        x = torch.randn(rows, width, device=scale.device)

        def step() -> None:
            if on_device:
                mask = torch.zeros(rows, width, device=scale.device)
            else:
                mask = torch.zeros(rows, width).to(scale.device)
            model.zero_grad()
            (model(x) + mask).square().mean().backward()

        return step

    return build


def _conv_bias(*, bias: bool) -> Build:
    def build(scale: Scale) -> Step:
        model = ConvStack(depth=scale.of(6, 2), channels=scale.of(64, 4), bias=bias).to(scale.device)
        x, y = _pictures(scale, scale.of(64, 2), scale.of(224, 16))

        def step() -> None:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()

        return step

    return build


def _zero_grad(*, to_none: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(4096, 16)
        model = Mlp(depth=scale.of(8, 2), width=width).to(scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=None)
        x = torch.randn(scale.of(256, 8), width, device=scale.device)

        def step() -> None:
            optimizer.zero_grad(set_to_none=to_none)
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def _allocations(*, emptied: bool) -> Build:
    def build(scale: Scale) -> Step:
        inner = _attention(math_only=False)(scale)

        def step() -> None:
            inner()
            if emptied and scale.device.type == "cuda":
                torch.cuda.empty_cache()

        return step

    return build


def many_kinds(scale: Scale) -> Step:
    model = ManyKinds().to(scale.device)
    x = torch.randn(scale.of(8, 2), 3, scale.of(224, 64), scale.of(224, 64), device=scale.device)

    def step() -> None:
        model.zero_grad()
        with _autocast(scale, True):
            y = model(x)
        y.float().square().mean().backward()

    return step


# In the order of worth: what the time does not allow is left out from the end.
GROUPS: tuple[Group, ...] = (
    Group(
        (
            Case("gpt-fp32", _gpt(), tf32=False),
            Case("gpt-tf32", _gpt()),
            Case("gpt-bf16", _gpt(amp=True), memory=True),
        ),
        (
            Pair("gpt-fp32", "gpt-tf32", "tf32", 'torch.set_float32_matmul_precision("high")'),
            Pair("gpt-fp32", "gpt-bf16", "amp", "torch.autocast with bfloat16"),
        ),
        seconds=6,
    ),
    Group(
        (Case("launch-eager", launch_eager), Case("launch-graph", launch_graph, cuda_only=True)),
        (Pair("launch-eager", "launch-graph", "launch-bound", "the whole step captured in a CUDA graph"),),
    ),
    Group(
        (Case("sync-item", _watched(item=True)), Case("sync-none", _watched(item=False))),
        (Pair("sync-item", "sync-none", "sync", "no .item() in the step; the values stay tensors"),),
    ),
    Group(
        (Case("optimizer-single", _optimizer(fused=False), active=2), Case("optimizer-fused", _optimizer(fused=True))),
        (Pair("optimizer-single", "optimizer-fused", "opt-foreach", "Adam with fused=True instead of foreach=False"),),
    ),
    Group(
        (
            Case("copies-pageable", _copies(pinned=False)),
            Case("copies-pinned", _copies(pinned=True)),
            Case("copies-ahead", copies_ahead, cuda_only=True),
        ),
        (
            Pair("copies-pageable", "copies-pinned", "pageable", "pin_memory() and non_blocking=True"),
            Pair("copies-pinned", "copies-ahead", "h2d-exposed", "the next batch copied on a second stream"),
        ),
    ),
    Group(
        (Case("attention-math", _attention(math_only=True)), Case("attention-sdpa", _attention(math_only=False))),
        (Pair("attention-math", "attention-sdpa", "attention", "F.scaled_dot_product_attention"),),
    ),
    Group(
        (
            Case("shapes-misaligned", _gpt(half=True, inner=4093, vocabulary=50257, layers=2)),
            Case("shapes-padded", _gpt(half=True, inner=4096, vocabulary=50304, layers=2)),
        ),
        (
            Pair(
                "shapes-misaligned", "shapes-padded", "bad-shape", "vocabulary 50257 to 50304, inner width 4093 to 4096"
            ),
        ),
    ),
    Group(
        (
            Case("resnet-fp32", _resnet(), tf32=False, active=2),
            Case("resnet-tf32", _resnet(), active=2),
            Case("resnet-amp", _resnet(amp=True), active=2),
            Case("resnet-amp-channels-last", _resnet(amp=True, channels_last=True), active=2),
        ),
        (
            Pair("resnet-fp32", "resnet-tf32", "tf32", "TF32 allowed for convolutions and matrix products"),
            Pair("resnet-fp32", "resnet-amp", "amp", "torch.autocast with bfloat16"),
            Pair("resnet-tf32", "resnet-amp", "amp", "torch.autocast with bfloat16"),
            Pair(
                "resnet-amp", "resnet-amp-channels-last", "transposes", "memory_format=channels_last, model and input"
            ),
        ),
        seconds=9,
    ),
    Group(
        (Case("loader-workers0", _loader(workers=0)), Case("loader-workers4", _loader(workers=4))),
        (Pair("loader-workers0", "loader-workers4", "workers0", "DataLoader with num_workers=4"),),
        in_turns=False,
        warm_up=12,  # batches that lay ready are used up
        seconds=6,
    ),
    Group(
        (Case("zeros-copied", _created(on_device=False)), Case("zeros-on-device", _created(on_device=True))),
        (Pair("zeros-copied", "zeros-on-device", "extra-copy", "torch.zeros(..., device=device)"),),
    ),
    Group(
        (Case("conv-bias", _conv_bias(bias=True)), Case("conv-no-bias", _conv_bias(bias=False))),
        (Pair("conv-bias", "conv-no-bias", "conv-bias-bn", "bias=False before batch normalisation"),),
    ),
    Group(
        (Case("zero-grad-fill", _zero_grad(to_none=False)), Case("zero-grad-none", _zero_grad(to_none=True))),
        (Pair("zero-grad-fill", "zero-grad-none", "zero-grad", "zero_grad(set_to_none=True)"),),
    ),
    Group((Case("many-kinds", many_kinds, averages=True, flops=True),), seconds=3),
    Group((Case("gpt-stacks", _gpt(amp=True, layers=1), stacks=True, averages=True, active=2),), seconds=3),
    Group(
        (
            Case("elementwise-eager", _elementwise(compiled=False)),
            Case("elementwise-compiled", _elementwise(compiled=True), cuda_only=True),
        ),
        (Pair("elementwise-eager", "elementwise-compiled", "elementwise", "torch.compile"),),
        seconds=18,
    ),
    Group(
        (Case("cache-emptied", _allocations(emptied=True)), Case("cache-kept", _allocations(emptied=False))),
        (Pair("cache-emptied", "cache-kept", "alloc", "no torch.cuda.empty_cache() in the step"),),
    ),
    Group(
        (Case("launch-compiled", launch_compiled, cuda_only=True),),
        (Pair("launch-eager", "launch-compiled", "compile", "torch.compile"),),
        seconds=15,
    ),
)
