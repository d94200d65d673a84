"""Cases for record_pairs.py with models and sizes that those of record_cases.py do not have: a hold-out.

    python3 tests/support/record_pairs.py OUTDIR --cases record_other_models --before-only

The estimates of gpuprep/trace/advice were made before these were recorded.
"""

from __future__ import annotations

import torch
from record_cases import Build, Case, Group, Pair, Step, _autocast, _forever, _pictures, graphed
from record_models import Block, PackedPictures, Scale
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Encoder(nn.Module):
    """Layers of attention and two products over given vectors: a ViT without its picture."""

    def __init__(self, *, layers: int, width: int, heads: int, inner: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width, heads, inner) for _ in range(layers)])
        for block in self.blocks:
            block.attention.causal = False
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean(1))


class Vgg(nn.Module):
    """3x3 convolutions with batch normalisation, and fewer pixels after each group (Simonyan and Zisserman, 2014)."""

    def __init__(self, widths: tuple[int, ...], *, each: int, bias: bool, classes: int = 100) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inside = 3
        for width in widths:
            for _ in range(each):
                layers += [nn.Conv2d(inside, width, 3, padding=1, bias=bias), nn.BatchNorm2d(width), nn.ReLU()]
                inside = width
            layers.append(nn.MaxPool2d(2))
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Recurrent(nn.Module):
    """A GRU cell by hand, step by step: many short kernels."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.gates, self.new, self.length = nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, width), length

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for _ in range(self.length):
            reset, update = torch.sigmoid(self.gates(torch.cat((x, state), 1))).chunk(2, 1)
            state = update * state + (1 - update) * torch.tanh(self.new(torch.cat((x, reset * state), 1)))
        return state


class Gated(nn.Module):
    """Blocks of RMS normalisation and a gated pair of products, all by hand."""

    def __init__(self, *, layers: int, width: int, inner: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(layers)])
        self.up = nn.ModuleList([nn.Linear(width, 2 * inner, bias=False) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(inner, width, bias=False) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for scale, up, down in zip(self.scales, self.up, self.down, strict=True):
            y = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype) * scale
            gate, value = up(y).chunk(2, -1)
            x = x + down(gate * torch.sigmoid(gate) * value)
        return x


def _encoder(*, amp: bool = False) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(768, 32)
        model = Encoder(
            layers=scale.of(6, 1), width=width, heads=scale.of(12, 2), inner=scale.of(3072, 64), classes=1000
        ).to(scale.device)
        x = torch.randn(scale.of(32, 2), scale.of(197, 8), width, device=scale.device)
        y = torch.randint(0, 1000, (len(x),), device=scale.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=scale.device.type == "cuda")

        def step() -> None:
            optimizer.zero_grad()
            with _autocast(scale, amp):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        return step

    return build


def _vgg(*, amp: bool = False, channels_last: bool = False, bias: bool = False) -> Build:
    def build(scale: Scale) -> Step:
        order = torch.channels_last if channels_last else torch.contiguous_format
        widths = (96, 192, 384, 512) if not scale.tiny else (8, 8)
        model = Vgg(widths, each=2, bias=bias).to(scale.device, memory_format=order)
        x, y = _pictures(scale, scale.of(96, 2), scale.of(128, 16))
        x = x.contiguous(memory_format=order)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, amp):
                loss = F.cross_entropy(model(x), y)
            loss.backward()

        return step

    return build


def _recurrent(scale: Scale) -> tuple[nn.Module, Tensor]:
    width = scale.of(512, 8)
    return Recurrent(width, scale.of(48, 3)).to(scale.device), torch.randn(scale.of(128, 4), width, device=scale.device)


def recurrent_eager(scale: Scale) -> Step:
    model, x = _recurrent(scale)

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return step


def recurrent_graph(scale: Scale) -> Step:
    return graphed(recurrent_eager(scale))


def _logged(*, item: bool) -> Build:
    """Long layers whose largest value is looked at; with `item` it is fetched each time."""

    def build(scale: Scale) -> Step:
        width = scale.of(6144, 16)
        layers = [nn.Linear(width, width, device=scale.device, dtype=torch.bfloat16) for _ in range(scale.of(8, 2))]
        x = torch.randn(scale.of(1024, 8), width, device=scale.device, dtype=torch.bfloat16)
        seen: list[float | Tensor] = []

        def step() -> None:
            seen.clear()
            y = x
            for layer in layers:
                layer.zero_grad()
                y = torch.relu(layer(y))
                seen.append(y.amax().item() if item else y.detach().amax())
            y.square().mean().backward()

        return step

    return build


def _adamw(*, fused: bool) -> Build:
    def build(scale: Scale) -> Step:
        model = Encoder(
            layers=scale.of(8, 1), width=scale.of(512, 16), heads=scale.of(8, 2), inner=scale.of(2048, 32), classes=10
        ).to(scale.device)
        kind = {"fused": True} if fused else {"foreach": False}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)
        x = torch.randn(4, scale.of(64, 4), scale.of(512, 16), device=scale.device)

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def _fed(*, pinned: bool) -> Build:
    """Pictures that lie ready in the CPU's memory."""

    def build(scale: Scale) -> Step:
        side = scale.of(192, 16)
        batches = [torch.randn(scale.of(160, 2), 3, side, side) for _ in range(2)]
        if pinned and scale.device.type == "cuda":
            batches = [batch.pin_memory() for batch in batches]
        model = nn.Sequential(
            nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1)
        ).to(scale.device)
        count = 0

        def step() -> None:
            nonlocal count
            x = batches[count % 2].to(scale.device, non_blocking=pinned)
            count += 1
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return build


def fed_ahead(scale: Scale) -> Step:
    side_length = scale.of(192, 16)
    batches = [torch.randn(scale.of(160, 2), 3, side_length, side_length).pin_memory() for _ in range(2)]
    places = [batch.to(scale.device) for batch in batches]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1)
    ).to(scale.device)
    side, here = torch.cuda.Stream(), torch.cuda.current_stream()
    count = 0

    def step() -> None:
        nonlocal count
        this, then = count % 2, (count + 1) % 2
        count += 1
        here.wait_stream(side)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            places[then].copy_(batches[then], non_blocking=True)
        model.zero_grad()
        model(places[this]).square().mean().backward()

    return step


def _heads(*, fused: bool) -> Build:
    """Attention with heads of 128 in FP16, with a mask of its own in the long form."""

    def build(scale: Scale) -> Step:
        shape = (scale.of(6, 2), scale.of(12, 2), scale.of(1536, 16), scale.of(128, 8))
        make = {"device": scale.device, "dtype": torch.float16 if scale.device.type == "cuda" else torch.float32}
        q, k, v = (torch.randn(shape, **make, requires_grad=True) for _ in range(3))
        flat = (shape[0] * shape[1], shape[2], shape[3])

        def step() -> None:
            for one in (q, k, v):
                one.grad = None
            if fused:
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                scores = torch.bmm(q.view(flat), k.view(flat).transpose(1, 2)) * shape[3] ** -0.5
                y = torch.bmm(torch.softmax(scores, -1), v.view(flat))
            y.float().square().mean().backward()

        return step

    return build


def _widths(*, inner: int, classes: int) -> Build:
    def build(scale: Scale) -> Step:
        width, tall = scale.of(2048, 16), inner if not scale.tiny else 31
        model = nn.Sequential(
            nn.Linear(width, tall), nn.GELU(), nn.Linear(tall, tall), nn.GELU(), nn.Linear(tall, classes)
        )
        model = model.to(scale.device).half() if scale.device.type == "cuda" else model
        x = torch.randn(scale.of(6000, 8), width, device=scale.device, dtype=next(model.parameters()).dtype)

        def step() -> None:
            model.zero_grad()
            model(x).float().square().mean().backward()

        return step

    return build


def _workers(*, workers: int) -> Build:
    def build(scale: Scale) -> Step:
        rows = scale.of(24, 4)
        pictures = PackedPictures(scale.of(160, 16), rows * 3000)
        loader = DataLoader(
            pictures, batch_size=rows, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        batches = _forever(loader)
        model = Vgg((64, 128) if not scale.tiny else (8,), each=2, bias=False, classes=10).to(scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            x, y = next(batches)
            x, y = x.to(scale.device), y.to(scale.device)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step

    return build


def _noise(*, on_device: bool) -> Build:
    """Noise that is added to the input, made on the CPU or where it is used."""

    def build(scale: Scale) -> Step:
        rows, width = scale.of(1024, 8), scale.of(3072, 16)
        model = nn.Sequential(*[nn.Linear(width, width) for _ in range(scale.of(4, 1))]).to(scale.device)
        x = torch.randn(rows, width, device=scale.device)

        def step() -> None:
            if on_device:
                noise = torch.ones(rows, width, device=scale.device)
            else:
                noise = torch.ones(rows, width).to(scale.device)
            model.zero_grad()
            model(x + noise).square().mean().backward()

        return step

    return build


def _zeroed(*, to_none: bool) -> Build:
    def build(scale: Scale) -> Step:
        model = nn.Sequential(*[nn.Linear(scale.of(6144, 16), scale.of(6144, 16)) for _ in range(scale.of(5, 1))])
        model = model.to(scale.device)
        x = torch.randn(scale.of(512, 8), scale.of(6144, 16), device=scale.device)

        def step() -> None:
            optimizer.zero_grad(set_to_none=to_none)
            model(x).square().mean().backward()
            optimizer.step()

        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=scale.device.type == "cuda")
        return step

    return build


def _gated(*, compiled: bool) -> Build:
    def build(scale: Scale) -> Step:
        model = Gated(layers=scale.of(3, 1), width=scale.of(1024, 16), inner=scale.of(1024, 16)).to(scale.device)
        model = model.bfloat16()
        call = torch.compile(model) if compiled else model
        x = torch.randn(scale.of(16384, 8), scale.of(1024, 16), device=scale.device, dtype=torch.bfloat16)

        def step() -> None:
            model.zero_grad()
            call(x).square().mean().backward()

        return step

    return build


def _emptied(*, emptied: bool) -> Build:
    def build(scale: Scale) -> Step:
        inner = _encoder(amp=True)(scale)

        def step() -> None:
            inner()
            if emptied and scale.device.type == "cuda":
                torch.cuda.empty_cache()

        return step

    return build


GROUPS: tuple[Group, ...] = (
    Group(
        (
            Case("encoder-fp32", _encoder(), tf32=False),
            Case("encoder-tf32", _encoder()),
            Case("encoder-bf16", _encoder(amp=True)),
        ),
        (
            Pair("encoder-fp32", "encoder-tf32", "tf32", 'torch.set_float32_matmul_precision("high")'),
            Pair("encoder-fp32", "encoder-bf16", "amp", "torch.autocast with bfloat16"),
        ),
        seconds=5,
    ),
    Group(
        (Case("recurrent-eager", recurrent_eager), Case("recurrent-graph", recurrent_graph, cuda_only=True)),
        (Pair("recurrent-eager", "recurrent-graph", "launch-bound", "the whole step captured in a CUDA graph"),),
    ),
    Group(
        (Case("logged-item", _logged(item=True)), Case("logged-none", _logged(item=False))),
        (Pair("logged-item", "logged-none", "sync", "no .item() in the step; the values stay tensors"),),
    ),
    Group(
        (Case("adamw-single", _adamw(fused=False), active=2), Case("adamw-fused", _adamw(fused=True))),
        (Pair("adamw-single", "adamw-fused", "opt-foreach", "AdamW with fused=True instead of foreach=False"),),
    ),
    Group(
        (
            Case("fed-pageable", _fed(pinned=False)),
            Case("fed-pinned", _fed(pinned=True)),
            Case("fed-ahead", fed_ahead, cuda_only=True),
        ),
        (
            Pair("fed-pageable", "fed-pinned", "pageable", "pin_memory() and non_blocking=True"),
            Pair("fed-pinned", "fed-ahead", "h2d-exposed", "the next batch copied on a second stream"),
        ),
    ),
    Group(
        (Case("heads-math", _heads(fused=False)), Case("heads-sdpa", _heads(fused=True))),
        (Pair("heads-math", "heads-sdpa", "attention", "F.scaled_dot_product_attention"),),
    ),
    Group(
        (
            Case("widths-odd", _widths(inner=5005, classes=1003)),
            Case("widths-padded", _widths(inner=5008, classes=1008)),
        ),
        (Pair("widths-odd", "widths-padded", "bad-shape", "widths 5005 to 5008 and 1003 to 1008"),),
    ),
    Group(
        (
            Case("vgg-fp32", _vgg(), tf32=False, active=2),
            Case("vgg-tf32", _vgg(), active=2),
            Case("vgg-amp", _vgg(amp=True), active=2),
            Case("vgg-amp-channels-last", _vgg(amp=True, channels_last=True), active=2),
        ),
        (
            Pair("vgg-fp32", "vgg-tf32", "tf32", "TF32 allowed for convolutions and matrix products"),
            Pair("vgg-fp32", "vgg-amp", "amp", "torch.autocast with bfloat16"),
            Pair("vgg-amp", "vgg-amp-channels-last", "transposes", "memory_format=channels_last, model and input"),
        ),
        seconds=8,
    ),
    Group(
        (Case("vgg-bias", _vgg(amp=True, bias=True), active=2), Case("vgg-no-bias", _vgg(amp=True), active=2)),
        (Pair("vgg-bias", "vgg-no-bias", "conv-bias-bn", "bias=False before batch normalisation"),),
    ),
    Group(
        (Case("workers-0", _workers(workers=0)), Case("workers-6", _workers(workers=6))),
        (Pair("workers-0", "workers-6", "workers0", "DataLoader with num_workers=6"),),
        in_turns=False,
        warm_up=14,
        seconds=6,
    ),
    Group(
        (Case("noise-copied", _noise(on_device=False)), Case("noise-on-device", _noise(on_device=True))),
        (Pair("noise-copied", "noise-on-device", "extra-copy", "torch.ones(..., device=device)"),),
    ),
    Group(
        (Case("zeroed-fill", _zeroed(to_none=False)), Case("zeroed-none", _zeroed(to_none=True))),
        (Pair("zeroed-fill", "zeroed-none", "zero-grad", "zero_grad(set_to_none=True)"),),
    ),
    Group(
        (Case("emptied-cache", _emptied(emptied=True), memory=True), Case("emptied-not", _emptied(emptied=False))),
        (Pair("emptied-cache", "emptied-not", "alloc", "no torch.cuda.empty_cache() in the step"),),
    ),
    Group(
        (Case("gated-eager", _gated(compiled=False)), Case("gated-compiled", _gated(compiled=True), cuda_only=True)),
        (Pair("gated-eager", "gated-compiled", "elementwise", "torch.compile"),),
        seconds=14,
    ),
)
