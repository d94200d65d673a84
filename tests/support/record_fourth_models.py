"""Cases for record_pairs.py that no rule of gpuprep/trace/advice was made with: a third hold-out, recorded on an H200.

python3 tests/support/record_pairs.py OUTDIR --cases record_fourth_models --before-only
"""

from __future__ import annotations

import math

import numpy as np
import torch
from record_cases import Build, Case, Group, Pair, Step, _autocast, _forever, graphed
from record_models import Scale
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def _half(scale: Scale) -> torch.dtype:
    return torch.bfloat16 if scale.device.type == "cuda" else torch.float32


class WaveNet(nn.Module):
    """Dilated 1D convolutions with gates (van den Oord and others, 2016)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList([nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(depth)])
        self.outs = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for gate, out in zip(self.gates, self.outs, strict=True):
            value, opened = gate(x).chunk(2, 1)
            x = x + out(torch.tanh(value) * torch.sigmoid(opened))
        return x


class Graph(nn.Module):
    """Messages along edges: gather, two products, sum at the receiver."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.messages = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])
        self.updates = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.relu(message(torch.cat((x[source], x[target]), 1)))
            received = torch.zeros_like(x).index_add(0, target, sent)
            x = x + F.relu(update(torch.cat((x, received), 1)))
        return x


class Turned(Dataset[tuple[Tensor, Tensor]]):
    """Pictures that are cut, mirrored and coloured by NumPy."""

    def __init__(self, side: int, count: int) -> None:
        self.side, self.count = side, count
        self.picture = np.random.default_rng(1).integers(0, 256, (side + 32, side + 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        top, left = index % 32, index // 32 % 32
        cut = self.picture[top : top + self.side, left : left + self.side].astype(np.float32) / 255
        cut = cut[:, ::-1] if index % 2 else cut
        cut = np.clip(cut * (0.8 + index % 5 / 10) + 0.1 * np.sin(cut), 0, 1) ** 1.2
        return torch.from_numpy(np.ascontiguousarray(cut.transpose(2, 0, 1))), torch.tensor(index % 100)


class Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 16, 16)
        layer = nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.cut(x).flatten(2).transpose(1, 2)).mean(1))


def _wavenet(*, amp: bool = False) -> Build:
    def build(scale: Scale) -> Step:
        model = WaveNet(scale.of(256, 8), scale.of(10, 2)).to(scale.device)
        x = torch.randn(scale.of(16, 2), 1, scale.of(16000, 64), device=scale.device)

        def step() -> None:
            model.zero_grad()
            with _autocast(scale, amp):
                y = model(x)
            y.float().square().mean().backward()

        return step

    return build


def _graph(scale: Scale) -> Step:
    nodes, edges, width = scale.of(40000, 50), scale.of(160000, 200), scale.of(512, 8)
    model = Graph(width, scale.of(4, 1)).to(scale.device)
    x = torch.randn(nodes, width, device=scale.device)
    source, target = (torch.randint(0, nodes, (edges,), device=scale.device) for _ in range(2))

    def step() -> None:
        model.zero_grad()
        model(x, source, target).square().mean().backward()

    return step


def _averaged(*, foreach: bool) -> Build:
    """A second set of weights follows the first (diffusion models): weight by weight, or all at once."""

    def build(scale: Scale) -> Step:
        width = scale.of(256, 8)
        model = nn.Sequential(
            *[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()) for _ in range(scale.of(100, 2))]
        ).to(scale.device)
        x = torch.randn(scale.of(2048, 4), width, device=scale.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=scale.device.type == "cuda")
        weights = list(model.parameters())
        followers = [one.detach().clone() for one in weights]

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                if foreach:
                    torch._foreach_lerp_(followers, weights, 0.001)
                else:
                    for follower, weight in zip(followers, weights, strict=True):
                        follower.mul_(0.999).add_(weight, alpha=0.001)

        return step

    return build


def _adagrad(*, foreach: bool) -> Build:
    def build(scale: Scale) -> Step:
        width = scale.of(384, 8)
        model = Patches(width, scale.of(12, 1)).to(scale.device)
        x = torch.randn(scale.of(32, 2), 3, scale.of(224, 32), scale.of(224, 32), device=scale.device)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3, foreach=foreach)

        def step() -> None:
            optimizer.zero_grad()
            with _autocast(scale, True):
                y = model(x)
            y.float().square().mean().backward()
            optimizer.step()

        return step

    return build


def _chosen(*, indexed: bool) -> Build:
    """The loss of the rows that count: chosen by a mask as an index (its size comes to the CPU), or by a weight."""

    def build(scale: Scale) -> Step:
        width = scale.of(1024, 16)
        layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(scale.of(8, 2))]
        model = nn.Sequential(*layers).to(scale.device)
        x = torch.randn(scale.of(8192, 16), width, device=scale.device)
        heads = nn.ModuleList([nn.Linear(width, 16) for _ in range(scale.of(12, 2))]).to(scale.device)
        masks = [torch.rand(len(x), device=scale.device) > 0.5 for _ in heads]

        def step() -> None:
            model.zero_grad()
            heads.zero_grad()
            y = model(x)
            loss = torch.zeros((), device=scale.device)
            for head, mask in zip(heads, masks, strict=True):
                if indexed:
                    loss = loss + head(y)[mask].square().mean()
                else:
                    loss = loss + (head(y).square().mean(1) * mask).sum() / mask.sum()
            loss.backward()

        return step

    return build


def _waiting(*, waits: bool) -> Build:
    """torch.cuda.synchronize() after each block, left over from a search for an error."""

    def build(scale: Scale) -> Step:
        width = scale.of(1536, 16)
        layers = [
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(scale.of(24, 2))
        ]
        model = nn.ModuleList(layers).to(scale.device)
        x = torch.randn(scale.of(1024, 4), width, device=scale.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

        def step() -> None:
            optimizer.zero_grad()
            y = x
            with _autocast(scale, True):
                for layer in model:
                    y = layer(y)
                    if waits and scale.device.type == "cuda":
                        torch.cuda.synchronize()
            y.float().square().mean().backward()
            optimizer.step()

        return step

    return build


def _turned(*, workers: int) -> Build:
    def build(scale: Scale) -> Step:
        rows = scale.of(48, 4)
        pictures = Turned(scale.of(224, 32), rows * 2000)
        loader = DataLoader(
            pictures, batch_size=rows, num_workers=workers, persistent_workers=workers > 0, drop_last=True,
            pin_memory=scale.device.type == "cuda",
        )  # fmt: skip
        batches = _forever(loader)
        model = Patches(scale.of(768, 8), scale.of(12, 1)).to(scale.device)
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


def _biased(*, fused: bool) -> Build:
    """Attention with a bias by distance (ALiBi)."""

    def build(scale: Scale) -> Step:
        many, heads, length, each = scale.of(8, 2), scale.of(16, 2), scale.of(1536, 16), scale.of(64, 8)
        make = {"device": scale.device, "dtype": _half(scale)}
        q, k, v = (torch.randn(many, heads, length, each, **make, requires_grad=True) for _ in range(3))
        place = torch.arange(length, device=scale.device)
        slopes = 2.0 ** -torch.arange(1, heads + 1, device=scale.device).view(-1, 1, 1)
        bias = (-(place.view(-1, 1) - place).abs() * slopes).to(make["dtype"])

        def step() -> None:
            for one in (q, k, v):
                one.grad = None
            if fused:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(many, -1, -1, -1))
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(each) + bias, dim=-1) @ v
            y.float().square().mean().backward()

        return step

    return build


def _results(*, pinned: bool) -> Build:
    """Features of each picture go back to the CPU, which keeps them."""

    def build(scale: Scale) -> Step:
        width = scale.of(4096, 16)
        model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).to(scale.device)
        model = model.to(_half(scale))
        x = torch.randn(scale.of(16384, 8), width, device=scale.device, dtype=_half(scale))
        kept = torch.empty(x.shape, dtype=x.dtype, pin_memory=scale.device.type == "cuda")

        def step() -> None:
            with torch.no_grad():
                y = model(x)
                if pinned:
                    kept.copy_(y, non_blocking=True)
                else:
                    y.cpu()

        return step

    return build


def lstm_eager(scale: Scale) -> Step:
    """A cell that is called for each time: nothing that cuDNN could take in one piece."""
    width = scale.of(512, 8)
    cell, head = nn.LSTMCell(width, width).to(scale.device), nn.Linear(width, width).to(scale.device)
    x = torch.randn(scale.of(96, 3), scale.of(128, 2), width, device=scale.device)

    def step() -> None:
        cell.zero_grad()
        head.zero_grad()
        state = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        loss = torch.zeros((), device=scale.device)
        for one in x:
            state = cell(one, state)
            loss = loss + head(state[0]).square().mean()
        loss.backward()

    return step


def lstm_graph(scale: Scale) -> Step:
    return graphed(lstm_eager(scale))


def _smoothed(*, compiled: bool) -> Build:
    """A loss written out by hand on large maps: focal loss with a smooth edge."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(x)
        near = p * y + (1 - p) * (1 - y)
        weight = 0.25 * y + 0.75 * (1 - y)
        focal = -weight * (1 - near).pow(2) * torch.log(near.clamp(min=1e-6))
        edge = torch.where((x - y).abs() < 1, 0.5 * (x - y) ** 2, (x - y).abs() - 0.5)
        return (focal + 0.1 * edge).mean()

    def build(scale: Scale) -> Step:
        x = torch.randn(
            scale.of(64, 1), 80, scale.of(128, 8), scale.of(128, 8), device=scale.device, requires_grad=True
        )
        y = (torch.rand_like(x) > 0.95).float()
        call = torch.compile(loss) if compiled else loss

        def step() -> None:
            x.grad = None
            call(x, y).backward()

        return step

    return build


def _experts(*, inner: int) -> Build:
    """Products of a mixture of experts in FP16: each expert's rows by its own weights."""

    def build(scale: Scale) -> Step:
        dtype = torch.float16 if scale.device.type == "cuda" else torch.float32
        experts, width, wide = scale.of(8, 2), scale.of(2048, 16), inner if not scale.tiny else 31
        ups = [nn.Linear(width, wide, bias=False, device=scale.device, dtype=dtype) for _ in range(experts)]
        downs = [nn.Linear(wide, width, bias=False, device=scale.device, dtype=dtype) for _ in range(experts)]
        model = nn.ModuleList([*ups, *downs])
        x = torch.randn(experts, scale.of(2048, 8), width, device=scale.device, dtype=dtype)

        def step() -> None:
            model.zero_grad()
            y = torch.stack([down(F.relu(up(one))) for one, up, down in zip(x, ups, downs, strict=True)])
            y.float().square().mean().backward()

        return step

    return build


GROUPS: tuple[Group, ...] = (
    Group(
        (
            Case("wavenet-fp32", _wavenet(), tf32=False),
            Case("wavenet-tf32", _wavenet()),
            Case("wavenet-bf16", _wavenet(amp=True)),
        ),
        (
            Pair("wavenet-fp32", "wavenet-tf32", "tf32", "torch.backends.cudnn.allow_tf32 = True"),
            Pair("wavenet-fp32", "wavenet-bf16", "amp", "torch.autocast with bfloat16"),
        ),
        seconds=6,
    ),
    Group(
        (Case("graph-fp32", _graph, tf32=False), Case("graph-tf32", _graph)),
        (Pair("graph-fp32", "graph-tf32", "tf32", 'torch.set_float32_matmul_precision("high")'),),
    ),
    Group(
        (Case("averaged-loop", _averaged(foreach=False)), Case("averaged-foreach", _averaged(foreach=True))),
        (Pair("averaged-loop", "averaged-foreach", "opt-foreach", "torch._foreach_lerp_ for the averaged weights"),),
    ),
    Group(
        (Case("adagrad-single", _adagrad(foreach=False)), Case("adagrad-foreach", _adagrad(foreach=True))),
        (Pair("adagrad-single", "adagrad-foreach", "opt-foreach", "Adagrad with foreach=True"),),
    ),
    Group(
        (Case("chosen-indexed", _chosen(indexed=True)), Case("chosen-weighted", _chosen(indexed=False))),
        (Pair("chosen-indexed", "chosen-weighted", "sync", "a weight for each row in place of an index"),),
    ),
    Group(
        (Case("waiting", _waiting(waits=True)), Case("waiting-not", _waiting(waits=False))),
        (Pair("waiting", "waiting-not", "sync", "without torch.cuda.synchronize()"),),
    ),
    Group(
        (Case("biased-math", _biased(fused=False)), Case("biased-sdpa", _biased(fused=True))),
        (Pair("biased-math", "biased-sdpa", "attention", "scaled_dot_product_attention with attn_mask"),),
    ),
    Group(
        (Case("results-pageable", _results(pinned=False)), Case("results-pinned", _results(pinned=True))),
        (Pair("results-pageable", "results-pinned", "pageable", "copy_() into pinned memory, non_blocking=True"),),
    ),
    Group(
        (Case("lstm-eager", lstm_eager), Case("lstm-graph", lstm_graph, cuda_only=True)),
        (Pair("lstm-eager", "lstm-graph", "launch-bound", "the whole step captured in a CUDA graph"),),
    ),
    Group(
        (Case("experts-odd", _experts(inner=5461)), Case("experts-padded", _experts(inner=5504))),
        (Pair("experts-odd", "experts-padded", "bad-shape", "5504 columns instead of 5461"),),
    ),
    Group(
        (Case("turned-workers0", _turned(workers=0)), Case("turned-workers8", _turned(workers=8))),
        (Pair("turned-workers0", "turned-workers8", "workers0", "DataLoader with num_workers=8"),),
        in_turns=False,
        seconds=10,
        warm_up=12,
    ),
    Group(
        (
            Case("smoothed-eager", _smoothed(compiled=False)),
            Case("smoothed-compiled", _smoothed(compiled=True), cuda_only=True),
        ),
        (Pair("smoothed-eager", "smoothed-compiled", "elementwise", "torch.compile"),),
        seconds=20,
        warm_up=4,
    ),
)
