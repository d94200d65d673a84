"""Cases for record_pairs.py that no rule of gpuprep/trace/advice was made with: a second hold-out, recorded on an H200.

python3 tests/support/record_pairs.py OUTDIR --cases record_third_models --before-only
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from record_cases import Build, Case, Group, Pair, Step, _autocast, _forever, graphed
from record_models import Scale
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Residual(nn.Module):
    """GroupNorm, SiLU and a 3x3 convolution, twice, as diffusion models have them."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inside), nn.GroupNorm(8, outside)])
        self.convs = nn.ModuleList([nn.Conv2d(inside, outside, 3, 1, 1), nn.Conv2d(outside, outside, 3, 1, 1)])
        self.short = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(F.silu(norm(y)))
        return y + self.short(x)


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, widths[0], 3, 1, 1)
        pairs = list(zip(widths, (*widths[1:], widths[-1]), strict=True))
        self.down = nn.ModuleList([Residual(inside, outside) for inside, outside in pairs])
        self.up = nn.ModuleList([Residual(2 * outside, inside) for inside, outside in reversed(pairs)])
        self.head = nn.Conv2d(widths[0], 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            x = block(torch.cat((x, kept.pop()), 1))
        return self.head(x)


class Separable(nn.Module):
    """Depthwise 5x5 and pointwise convolutions with batch normalization (MobileNet, EfficientNet)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1, bias=False)]
        for _ in range(depth):
            layers += [
                nn.Conv2d(width, width, 5, 1, 2, groups=width, bias=False), nn.BatchNorm2d(width), nn.Hardswish(),
                nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width),
            ]  # fmt: skip
        self.body, self.head = nn.Sequential(*layers), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Mixer(nn.Module):
    """Products over the places of a picture, then over its channels (Tolstikhin and others, 2021)."""

    def __init__(self, *, layers: int, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.places = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(places, 4 * places), nn.GELU(), nn.Linear(4 * places, places))
                for _ in range(layers)
            ]
        )
        self.widths = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)]
        )

    def forward(self, x: Tensor) -> Tensor:
        norms = iter(self.norms)
        for places, widths in zip(self.places, self.widths, strict=True):
            x = x + places(next(norms)(x).transpose(1, 2)).transpose(1, 2)
            x = x + widths(next(norms)(x))
        return x


class Llama(nn.Module):
    """Rotary places, RMS normalization and SwiGLU written by hand; attention by PyTorch."""

    def __init__(self, *, layers: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2 * layers)])
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.up = nn.ModuleList([nn.Linear(width, 2 * inner, bias=False) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(inner, width, bias=False) for _ in range(layers)])

    def turned(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        steps = torch.arange(0, self.each, 2, device=x.device) / self.each
        angle = torch.outer(torch.arange(length, device=x.device), 10000.0**-steps)
        cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)

    @staticmethod
    def normed(x: Tensor, scale: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale

    def forward(self, x: Tensor) -> Tensor:
        scales = iter(self.scales)
        for qkv, out, up, down in zip(self.qkv, self.out, self.up, self.down, strict=True):
            y = qkv(self.normed(x, next(scales))).unflatten(-1, (3, self.heads, self.each)).permute(2, 0, 3, 1, 4)
            q, k, v = y.unbind(0)
            y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
            x = x + out(y.transpose(1, 2).flatten(-2))
            gate, value = up(self.normed(x, next(scales))).chunk(2, -1)
            x = x + down(gate / (1 + torch.exp(-gate)) * value)
        return x


class Waves(Dataset[tuple[Tensor, Tensor]]):
    """Sound that is made louder, shifted and turned into a spectrum by NumPy."""

    def __init__(self, length: int, count: int) -> None:
        self.length, self.count = length, count
        self.sound = np.random.default_rng(1).standard_normal(length).astype(np.float32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        sound = np.roll(self.sound, index * 37) * (0.5 + index % 7 / 7)
        frames = sound[: self.length // 512 * 512].reshape(-1, 512) * np.hanning(512)
        spectrum = np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)
        return torch.from_numpy(spectrum), torch.tensor(index % 10)


def _unet(*, channels_last: bool) -> Build:
    def build(scale: Scale) -> Step:
        order = torch.channels_last if channels_last else torch.contiguous_format
        model = UNet((128, 256, 256) if not scale.tiny else (8, 16)).to(scale.device, memory_format=order)
        side = scale.of(64, 16)
        x = torch.randn(scale.of(24, 2), 4, side, side, device=scale.device).contiguous(memory_format=order)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, True):
                y = model(x)
            F.mse_loss(y.float(), x).backward()

        return step

    return build


def _separable(*, channels_last: bool) -> Build:
    def build(scale: Scale) -> Step:
        order = torch.channels_last if channels_last else torch.contiguous_format
        model = Separable(scale.of(192, 8), scale.of(8, 1)).to(scale.device, memory_format=order)
        side = scale.of(160, 16)
        x = torch.randn(scale.of(48, 2), 3, side, side, device=scale.device).contiguous(memory_format=order)
        y = torch.randint(0, 100, (len(x),), device=scale.device)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, True):
                loss = F.cross_entropy(model(x), y)
            loss.backward()

        return step

    return build


def _mixer(*, amp: bool = False) -> Build:
    def build(scale: Scale) -> Step:
        places, width = scale.of(256, 16), scale.of(1024, 16)
        model = Mixer(layers=scale.of(6, 1), places=places, width=width).to(scale.device)
        x = torch.randn(scale.of(64, 2), places, width, device=scale.device)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, amp):
                y = model(x)
            y.float().square().mean().backward()

        return step

    return build


def ensemble_eager(scale: Scale) -> Step:
    """Forty small networks, one after the other."""
    width = scale.of(256, 8)
    models = nn.ModuleList(
        [nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(scale.of(40, 2))]
    ).to(scale.device)
    x = torch.randn(scale.of(512, 4), width, device=scale.device)

    def step() -> None:
        models.zero_grad()
        torch.stack([model(x).square().mean() for model in models]).sum().backward()

    return step


def ensemble_graph(scale: Scale) -> Step:
    return graphed(ensemble_eager(scale))


def _clipped(*, fetched: bool) -> Build:
    """Gradients are cut layer by layer. With `fetched` the CPU asks for each layer's norm."""

    def build(scale: Scale) -> Step:
        width = scale.of(3072, 16)
        model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(scale.of(24, 2))]).to(scale.device)
        model = model.bfloat16() if scale.device.type == "cuda" else model
        x = torch.randn(scale.of(2048, 4), width, device=scale.device, dtype=next(model.parameters()).dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            for one in model.parameters():
                if one.grad is None:
                    continue
                if fetched:
                    norm = float(one.grad.norm())
                    if norm > 1.0:
                        one.grad.mul_(1.0 / norm)
                else:
                    one.grad.mul_(one.grad.norm().clamp(min=1.0).reciprocal())
            optimizer.step()

        return step

    return build


def _momentum(*, foreach: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(192, 8)
        model = nn.Sequential(
            *[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(scale.of(120, 2))]
        ).to(scale.device)
        x = torch.randn(scale.of(4096, 4), width, device=scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, foreach=foreach)

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def _volume(*, pinned: bool) -> Build:
    """Volumes of a scanner that lie in the CPU's memory."""

    def build(scale: Scale) -> Step:
        side = scale.of(128, 8)
        volumes = [torch.randn(scale.of(12, 1), 1, side, side, side) for _ in range(2)]
        if pinned and scale.device.type == "cuda":
            volumes = [volume.pin_memory() for volume in volumes]
        model = nn.Sequential(
            nn.Conv3d(1, 32, 4, 4), nn.ReLU(), nn.Conv3d(32, 64, 3, 1, 1), nn.ReLU(), nn.Conv3d(64, 64, 3, 1, 1)
        ).to(scale.device)
        count = 0

        def step() -> None:
            nonlocal count
            x = volumes[count % 2].to(scale.device, non_blocking=pinned)
            count += 1
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return build


def _crossed(*, fused: bool) -> Build:
    """Attention of few questions to many answers, in BF16."""

    def build(scale: Scale) -> Step:
        many, heads, each = scale.of(16, 2), scale.of(12, 2), scale.of(64, 8)
        make = {"device": scale.device, "dtype": torch.bfloat16 if scale.device.type == "cuda" else torch.float32}
        q = torch.randn(many, heads, scale.of(512, 8), each, **make, requires_grad=True)
        k, v = (torch.randn(many, heads, scale.of(2304, 16), each, **make, requires_grad=True) for _ in range(2))

        def step() -> None:
            for one in (q, k, v):
                one.grad = None
            if fused:
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(each), dim=-1) @ v
            y.float().square().mean().backward()

        return step

    return build


def _llama(*, compiled: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(1024, 16)
        model = Llama(layers=scale.of(3, 1), width=width, heads=scale.of(16, 2), inner=scale.of(2816, 32))
        model = model.to(scale.device).bfloat16()
        call = torch.compile(model) if compiled else model
        x = torch.randn(scale.of(8, 2), scale.of(1024, 8), width, device=scale.device, dtype=torch.bfloat16)

        def step() -> None:
            model.zero_grad()
            call(x).float().square().mean().backward()

        return step

    return build


def _words(*, classes: int) -> Build:
    """A language model's last product: states by all words."""

    def build(scale: Scale) -> Step:
        width = scale.of(2048, 16)
        make = {"device": scale.device, "dtype": torch.bfloat16 if scale.device.type == "cuda" else torch.float32}
        head = nn.Linear(width, classes if not scale.tiny else 31, bias=False, **make)
        x = torch.randn(scale.of(4096, 4), width, **make, requires_grad=True)
        y = torch.randint(0, 30, (len(x),), device=scale.device)

        def step() -> None:
            head.zero_grad()
            x.grad = None
            F.cross_entropy(head(x), y).backward()

        return step

    return build


def _masked(*, on_device: bool) -> Build:
    """A mask of the allowed places, made for each step."""

    def build(scale: Scale) -> Step:
        length, width = scale.of(4096, 16), scale.of(1024, 16)
        model = nn.Linear(width, width).to(scale.device)
        x = torch.randn(length, width, device=scale.device)

        def step() -> None:
            if on_device:
                mask = torch.zeros(length, length, device=scale.device)
            else:
                mask = torch.zeros(length, length).to(scale.device)
            model.zero_grad()
            y = model(x)
            torch.softmax(y @ y.t() + mask, -1).square().mean().backward()

        return step

    return build


def _waves(*, workers: int) -> Build:
    def build(scale: Scale) -> Step:
        rows = scale.of(32, 4)
        sounds = Waves(scale.of(48000, 2048), rows * 3000)
        loader = DataLoader(
            sounds, batch_size=rows, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        batches = _forever(loader)
        model = nn.Sequential(nn.Linear(257, scale.of(2048, 8)), nn.ReLU(), nn.Linear(scale.of(2048, 8), 10))
        model = model.to(scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            x, y = next(batches)
            x, y = x.to(scale.device), y.to(scale.device)
            optimizer.zero_grad()
            F.cross_entropy(model(x).mean(1), y).backward()
            optimizer.step()

        return step

    return build


def _waited(*, waits: bool) -> Build:
    """Something outside of PyTorch holds each step up: a log that is written to a slow disk."""

    def build(scale: Scale) -> Step:
        width = scale.of(4096, 16)
        model = nn.Sequential(*[nn.Linear(width, width) for _ in range(scale.of(6, 2))]).to(scale.device)
        x = torch.randn(scale.of(4096, 4), width, device=scale.device)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, True):
                y = model(x)
            y.float().square().mean().backward()
            if waits:
                if scale.device.type == "cuda":
                    torch.cuda.synchronize()
                time.sleep(0.018)

        return step

    return build


GROUPS: tuple[Group, ...] = (
    Group(
        (Case("unet-nchw", _unet(channels_last=False)), Case("unet-channels-last", _unet(channels_last=True))),
        (Pair("unet-nchw", "unet-channels-last", "transposes", "model and input in torch.channels_last"),),
    ),
    Group(
        (
            Case("separable-nchw", _separable(channels_last=False)),
            Case("separable-channels-last", _separable(channels_last=True)),
        ),
        (Pair("separable-nchw", "separable-channels-last", "transposes", "model and input in torch.channels_last"),),
    ),
    Group(
        (
            Case("mixer-fp32", _mixer(), tf32=False),
            Case("mixer-tf32", _mixer()),
            Case("mixer-bf16", _mixer(amp=True)),
        ),
        (
            Pair("mixer-fp32", "mixer-tf32", "tf32", 'torch.set_float32_matmul_precision("high")'),
            Pair("mixer-fp32", "mixer-bf16", "amp", "torch.autocast with bfloat16"),
        ),
        seconds=5,
    ),
    Group(
        (Case("ensemble-eager", ensemble_eager), Case("ensemble-graph", ensemble_graph, cuda_only=True)),
        (Pair("ensemble-eager", "ensemble-graph", "launch-bound", "the whole step captured in a CUDA graph"),),
    ),
    Group(
        (Case("clipped-fetched", _clipped(fetched=True)), Case("clipped-kept", _clipped(fetched=False))),
        (Pair("clipped-fetched", "clipped-kept", "sync", "the norms stay tensors"),),
    ),
    Group(
        (Case("momentum-single", _momentum(foreach=False)), Case("momentum-foreach", _momentum(foreach=True))),
        (Pair("momentum-single", "momentum-foreach", "opt-foreach", "SGD with foreach=True"),),
    ),
    Group(
        (Case("volume-pageable", _volume(pinned=False)), Case("volume-pinned", _volume(pinned=True))),
        (Pair("volume-pageable", "volume-pinned", "pageable", "pin_memory() and non_blocking=True"),),
    ),
    Group(
        (Case("crossed-math", _crossed(fused=False)), Case("crossed-sdpa", _crossed(fused=True))),
        (Pair("crossed-math", "crossed-sdpa", "attention", "scaled_dot_product_attention"),),
    ),
    Group(
        (Case("words-odd", _words(classes=32003)), Case("words-padded", _words(classes=32064))),
        (Pair("words-odd", "words-padded", "bad-shape", "32064 words instead of 32003"),),
    ),
    Group(
        (Case("masked-copied", _masked(on_device=False)), Case("masked-on-device", _masked(on_device=True))),
        (Pair("masked-copied", "masked-on-device", "extra-copy", "torch.zeros(..., device=...)"),),
    ),
    Group(
        (Case("waited", _waited(waits=True)), Case("waited-not", _waited(waits=False))),
        (Pair("waited", "waited-not", "gaps", "the log is written by another thread"),),
    ),
    Group(
        (Case("waves-workers0", _waves(workers=0)), Case("waves-workers8", _waves(workers=8))),
        (Pair("waves-workers0", "waves-workers8", "workers0", "DataLoader with num_workers=8"),),
        in_turns=False,
        seconds=10,
        warm_up=12,
    ),
    Group(
        (
            Case("llama-eager", _llama(compiled=False)),
            Case("llama-compiled", _llama(compiled=True), cuda_only=True),
        ),
        (Pair("llama-eager", "llama-compiled", "elementwise", "torch.compile"),),
        seconds=30,
        warm_up=4,
    ),
)
