"""What tests/traces/recorded_ranks was recorded from: DistributedDataParallel on two GPUs, the second with more rows.

gpuprep trace record -o OUTDIR -- torchrun --nproc-per-node 2 tests/support/record_ranks.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed
from record_models import Gpt
from torch import nn
from torch.nn import functional as F

ROWS = (6, 8)  # of each rank: the second keeps the first waiting
WORDS = 32_000
STEPS = 16


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    device = torch.device("cuda", rank)
    torch.manual_seed(rank)
    model = Gpt(layers=4, width=1024, heads=16, inner=4096, vocabulary=WORDS).to(device)
    together = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(together.parameters(), lr=1e-4, fused=True)
    for _ in range(STEPS):
        tokens = torch.randint(0, WORDS, (ROWS[rank], 513), device=device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            answers = together(tokens[:, :-1])
            loss = F.cross_entropy(answers.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
