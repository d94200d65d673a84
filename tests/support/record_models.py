"""The models that record_pairs.py trains for a few steps. Plain torch.nn; they run on a CPU, too, in small sizes."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset


@dataclass(frozen=True)
class Scale:
    """Where the models run, and whether they are small: a trial on a CPU that only shows that the script works."""

    device: torch.device
    tiny: bool

    def of(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = width * 4
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.short(x))


class ResNet(nn.Module):
    """ResNet-50 with (3, 4, 6, 3) blocks (He and others, 2015, table 1); the stride stands in the 3x3 convolution."""

    def __init__(self, blocks: tuple[int, int, int, int] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        layers: list[nn.Module] = []
        inside = 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            for block in range(count):
                layers.append(Bottleneck(inside, width, 2 if stage and not block else 1))
                inside = width * 4
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Attention(nn.Module):
    """Attention of several heads. `math`: two matrix products with a softmax between, as older code has it."""

    def __init__(self, width: int, heads: int, *, math_only: bool = False, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.math_only, self.causal = heads, math_only, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        head = width // self.heads
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, head).permute(2, 0, 3, 1, 4)
        if self.math_only:
            flat = (batch * self.heads, length, head)
            scores = torch.bmm(q.reshape(flat), k.reshape(flat).transpose(1, 2)) / math.sqrt(head)
            y = torch.bmm(torch.softmax(scores, -1), v.reshape(flat)).view(batch, self.heads, length, head)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, heads, inner) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


class ConvStack(nn.Module):
    """Convolution, batch normalisation, ReLU, several times. With a bias that the normalisation takes away again."""

    def __init__(self, *, depth: int, channels: int, bias: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(depth):
            inside = 3 if not index else channels
            conv = nn.Conv2d(inside, channels, 3, 2 if not index else 1, 1, bias=bias)
            layers += [conv, nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self, *, depth: int, width: int, norm: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) if norm else nn.Identity() for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.gelu(layer(norm(x)))
        return x


class Elementwise(nn.Module):
    """One matrix product, and around it normalisation and activation in many small operations."""

    def __init__(self, width: int, repeats: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(repeats)])

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale
            y = 0.5 * y * (1.0 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
            x = x + y
        return self.linear(x)


class ManyKinds(nn.Module):
    """Convolutions of many kinds, matrix products and attention: what floating-point operations are counted for."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 32, 7, 2, 3)
        self.grouped = nn.Conv2d(32, 64, 3, 1, 1, groups=4)
        self.dilated = nn.Conv2d(64, 64, 3, 1, 2, dilation=2)
        self.back = nn.ConvTranspose2d(64, 32, 4, 2, 1)
        self.depthwise = nn.Conv2d(32, 32, 5, 2, 2, groups=32)
        self.line = nn.Conv1d(32, 64, 3, padding=1)
        self.attention = Attention(64, 4)
        self.linear = nn.Linear(64, 96)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.grouped(F.relu(self.plain(x))))
        x = F.relu(self.back(F.relu(self.dilated(x))))
        x = F.relu(self.depthwise(x)).flatten(2)[:, :, :512]
        x = self.attention(self.line(x).transpose(1, 2))
        y = self.linear(x)
        return torch.matmul(y, y.transpose(1, 2))


class PackedPictures(Dataset[tuple[Tensor, Tensor]]):
    """Pictures that are unpacked and normalised when they are asked for: the work of a data loader, on the CPU."""

    def __init__(self, side: int, count: int) -> None:
        self.side, self.count = side, count
        generator = torch.Generator().manual_seed(1)
        noise = torch.randint(0, 48, (3, side, side), generator=generator, dtype=torch.uint8)
        self.packed = zlib.compress(bytes(noise.flatten().tolist()), 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        raw = bytearray(zlib.decompress(self.packed))
        picture = torch.frombuffer(raw, dtype=torch.uint8).view(3, self.side, self.side).float() / 255
        picture = picture.flip(2) if index % 2 else picture
        return (picture - 0.45) / 0.225, torch.tensor(index % 10)
