"""Cases for record_pairs.py that no rule of gpuprep/trace/advice was made with: a fourth hold-out, recorded on an H200.

python3 tests/support/record_pairs.py OUTDIR --cases record_fifth_models --before-only
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from record_cases import Build, Case, Group, Pair, Step, _autocast, _forever
from record_fourth_models import Patches, Turned, _half
from record_models import Scale
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Grouped(nn.Module):
    """Convolutions of 32 groups between pointwise ones (ResNeXt)."""

    def __init__(self, width: int, depth: int, groups: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                    nn.Conv2d(width, width, 3, 1, 1, groups=groups, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                )
                for _ in range(depth)
            ]
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x.mean((2, 3))


def _adam_by_hand(*, foreach: bool) -> Build:
    """An optimizer from a paper's code: a loop over the parameters."""

    def build(scale: Scale) -> Step:
        width = scale.of(512, 8)
        model = nn.Sequential(
            *[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh()) for _ in range(scale.of(60, 2))]
        ).to(scale.device)
        x = torch.randn(scale.of(4096, 4), width, device=scale.device)
        weights = list(model.parameters())
        means = [torch.zeros_like(one) for one in weights]
        squares = [torch.zeros_like(one) for one in weights]

        def update() -> None:
            grads = [one.grad for one in weights if one.grad is not None]
            if foreach:
                torch._foreach_lerp_(means, grads, 0.1)
                torch._foreach_mul_(squares, 0.999)
                torch._foreach_addcmul_(squares, grads, grads, 0.001)
                below = torch._foreach_sqrt(squares)
                torch._foreach_add_(below, 1e-8)
                torch._foreach_addcdiv_(weights, means, below, -1e-4)
                return
            for weight, grad, mean, square in zip(weights, grads, means, squares, strict=True):
                mean.mul_(0.9).add_(grad, alpha=0.1)
                square.mul_(0.999).addcmul_(grad, grad, value=0.001)
                weight.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-4)

        def step() -> None:
            model.zero_grad()
            model(x).square().mean().backward()
            with torch.no_grad():
                update()

        return step

    return build


def _zeroed_module(*, to_none: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(1024, 8)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(scale.of(80, 2))]).to(
            scale.device
        )
        x = torch.randn(scale.of(2048, 4), width, device=scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            model.zero_grad(set_to_none=to_none)
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return build


def _metrics(*, fetched: bool) -> Build:
    """Eight figures of each step: each taken to the CPU when it is there, or all kept on the GPU."""

    def build(scale: Scale) -> Step:
        width, classes = scale.of(2048, 16), scale.of(1000, 10)
        layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(scale.of(10, 2))]
        model = nn.Sequential(*layers, nn.Linear(width, classes)).to(scale.device)
        x = torch.randn(scale.of(1024, 16), width, device=scale.device)
        y = torch.randint(0, classes, (len(x),), device=scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
        kept: list[object] = []

        def step() -> None:
            optimizer.zero_grad()
            with _autocast(scale, True):
                z = model(x)
            loss = F.cross_entropy(z.float(), y)
            loss.backward()
            kept.clear()
            for k in range(1, 9):
                right = (z.detach().topk(k, -1).indices == y[:, None]).any(-1).float().mean()
                kept.append(right.cpu().numpy() if fetched else right)
            optimizer.step()

        return step

    return build


def _clocked(*, waits: bool) -> Build:
    """A program that times its own parts: it waits for the GPU after each."""

    def build(scale: Scale) -> Step:
        width = scale.of(1024, 16)
        model = Patches(width, scale.of(8, 1)).to(scale.device)
        x = torch.randn(scale.of(24, 2), 3, scale.of(224, 32), scale.of(224, 32), device=scale.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=scale.device.type == "cuda")

        def wait() -> None:
            if waits and scale.device.type == "cuda":
                torch.cuda.synchronize()

        def step() -> None:
            wait()
            with _autocast(scale, True):
                y = model(x)
            wait()
            y.float().square().mean().backward()
            wait()
            optimizer.step()
            wait()
            optimizer.zero_grad()

        return step

    return build


def _grouped(*, channels_last: bool) -> Build:
    def build(scale: Scale) -> Step:
        order = torch.channels_last if channels_last else torch.contiguous_format
        model = Grouped(scale.of(512, 8), scale.of(10, 1), scale.of(32, 2)).to(scale.device, memory_format=order)
        side = scale.of(160, 16)
        x = torch.randn(scale.of(64, 2), 3, side, side, device=scale.device).contiguous(memory_format=order)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, True):
                y = model(x)
            y.float().square().mean().backward()

        return step

    return build


def _causal(*, fused: bool) -> Build:
    """Attention of a language model as in its first paper: a mask that is filled in."""

    def build(scale: Scale) -> Step:
        many, heads, length, each = scale.of(12, 2), scale.of(12, 2), scale.of(1024, 16), scale.of(64, 8)
        width = heads * each
        make = {"device": scale.device, "dtype": _half(scale)}
        qkv, out = nn.Linear(width, 3 * width, **make), nn.Linear(width, width, **make)
        x = torch.randn(many, length, width, **make)
        later = torch.ones(length, length, dtype=torch.bool, device=scale.device).triu(1)

        def step() -> None:
            qkv.zero_grad()
            out.zero_grad()
            y = x
            for _ in range(4):
                q, k, v = qkv(y).view(many, length, 3, heads, each).permute(2, 0, 3, 1, 4).unbind(0)
                if fused:
                    z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                else:
                    score = (q @ k.transpose(-2, -1) / math.sqrt(each)).masked_fill(later, float("-inf"))
                    z = torch.softmax(score, dim=-1) @ v
                y = y + out(z.transpose(1, 2).reshape(many, length, width))
            y.float().square().mean().backward()

        return step

    return build


def _autoencoder(*, inside: int) -> Build:
    """Narrow layers of a size that no kernel likes, in FP16."""

    def build(scale: Scale) -> Step:
        dtype = torch.float16 if scale.device.type == "cuda" else torch.float32
        wide, narrow = scale.of(4096, 16), inside if not scale.tiny else 7
        sizes = (wide, narrow, wide, narrow, wide)
        layers = [nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(sizes)]
        model = nn.Sequential(*layers).to(scale.device, dtype)
        x = torch.randn(scale.of(16384, 8), wide, device=scale.device, dtype=dtype)

        def step() -> None:
            model.zero_grad()
            model(x).float().square().mean().backward()

        return step

    return build


def _one_worker(*, workers: int) -> Build:
    """A loader that has one worker, and needs more."""

    def build(scale: Scale) -> Step:
        rows = scale.of(64, 4)
        loader = DataLoader(
            Turned(scale.of(224, 32), rows * 2000), batch_size=rows, num_workers=workers, persistent_workers=True,
            drop_last=True, pin_memory=scale.device.type == "cuda",
        )  # fmt: skip
        batches = _forever(loader)
        model = Patches(scale.of(512, 8), scale.of(8, 1)).to(scale.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=scale.device.type == "cuda")

        def step() -> None:
            x, y = next(batches)
            x, y = x.to(scale.device, non_blocking=True), y.to(scale.device, non_blocking=True)
            optimizer.zero_grad()
            with _autocast(scale, True):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        return step

    return build


def _translated(*, amp: bool) -> Build:
    """Two layers of an LSTM by cuDNN, and a product by all words."""

    def build(scale: Scale) -> Step:
        width, words = scale.of(1024, 8), scale.of(16000, 30)
        body = nn.LSTM(width, width, 2, batch_first=True).to(scale.device)
        head = nn.Linear(width, words).to(scale.device)
        x = torch.randn(scale.of(128, 2), scale.of(64, 3), width, device=scale.device)
        y = torch.randint(0, words, (x.shape[0] * x.shape[1],), device=scale.device)

        def step() -> None:
            body.zero_grad()
            head.zero_grad()
            with _autocast(scale, amp):
                z = head(body(x)[0])
            F.cross_entropy(z.float().flatten(0, 1), y).backward()

        return step

    return build


def _swish(*, compiled: bool) -> Build:
    """Normalisation and gates by hand between products, in BF16."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
            self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

        def forward(self, x: Tensor) -> Tensor:
            middle = x - x.mean(-1, keepdim=True)
            y = middle / (middle.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.scale + self.shift
            a, b = self.one(y).chunk(2, -1)
            return x + self.two(a * torch.sigmoid(1.7 * a) * torch.tanh(b))

    def build(scale: Scale) -> Step:
        width = scale.of(1024, 16)
        model = nn.Sequential(*[Block(width) for _ in range(scale.of(4, 1))]).to(scale.device, _half(scale))
        call = torch.compile(model) if compiled else model
        x = torch.randn(scale.of(32768, 8), width, device=scale.device, dtype=_half(scale))

        def step() -> None:
            model.zero_grad()
            call(x).float().square().mean().backward()

        return step

    return build


GROUPS: tuple[Group, ...] = (
    Group(
        (Case("adam-by-hand", _adam_by_hand(foreach=False)), Case("adam-foreach", _adam_by_hand(foreach=True))),
        (Pair("adam-by-hand", "adam-foreach", "opt-foreach", "torch._foreach_... for all parameters"),),
    ),
    Group(
        (Case("module-zeroed", _zeroed_module(to_none=False)), Case("module-none", _zeroed_module(to_none=True))),
        (Pair("module-zeroed", "module-none", "zero-grad", "zero_grad(set_to_none=True)"),),
    ),
    Group(
        (Case("metrics-fetched", _metrics(fetched=True)), Case("metrics-kept", _metrics(fetched=False))),
        (Pair("metrics-fetched", "metrics-kept", "sync", "the figures stay tensors"),),
    ),
    Group(
        (Case("clocked", _clocked(waits=True)), Case("clocked-not", _clocked(waits=False))),
        (Pair("clocked", "clocked-not", "sync", "without torch.cuda.synchronize()"),),
    ),
    Group(
        (Case("grouped-nchw", _grouped(channels_last=False)), Case("grouped-nhwc", _grouped(channels_last=True))),
        (Pair("grouped-nchw", "grouped-nhwc", "transposes", "model and input in torch.channels_last"),),
    ),
    Group(
        (Case("causal-filled", _causal(fused=False)), Case("causal-sdpa", _causal(fused=True))),
        (Pair("causal-filled", "causal-sdpa", "attention", "scaled_dot_product_attention with is_causal"),),
    ),
    Group(
        (Case("narrow-odd", _autoencoder(inside=1021)), Case("narrow-padded", _autoencoder(inside=1024))),
        (Pair("narrow-odd", "narrow-padded", "bad-shape", "1024 columns instead of 1021"),),
    ),
    Group(
        (Case("translated-tf32", _translated(amp=False)), Case("translated-bf16", _translated(amp=True))),
        (Pair("translated-tf32", "translated-bf16", "amp", "torch.autocast with bfloat16"),),
    ),
    Group(
        (Case("loader-1", _one_worker(workers=1)), Case("loader-10", _one_worker(workers=10))),
        (Pair("loader-1", "loader-10", "dataloader", "DataLoader with num_workers=10"),),
        in_turns=False,
        seconds=10,
        warm_up=12,
    ),
    Group(
        (Case("swish-eager", _swish(compiled=False)), Case("swish-compiled", _swish(compiled=True), cuda_only=True)),
        (Pair("swish-eager", "swish-compiled", "elementwise", "torch.compile"),),
        seconds=20,
        warm_up=4,
    ),
)
