"""`gpuprep serve` over 1 000 hosts and 100 000 runs: seconds of each page, while it reads ahead and after.

The store is fleetstore.py's, on SQLite and PostgreSQL. The server is a process of its own, as users start it.
"""

from __future__ import annotations

import http.client
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from largestores import STORES
from ratios import Ratio, timed

sys.path.append(str(Path(__file__).parents[1] / "support"))
from dashboardserver import Server, serving
from fleetstore import write

HOSTS, NIGHTS = 1000, 100
LIMIT_SECONDS = 0.5
LIMIT_START = 10.0  # from the command to the first page: it reads the newest run of each host
ROUNDS = 9
LONGEST = 300  # seconds until all figures are read
PAGES = (
    "/fleet", "/fleet?page=20", "/fleet?sort=speed", "/fleet?verdict=FAIL", "/fleet?name=099&gpu=NVIDIA+H200",
    "/host/gpu-0003", "/host/gpu-0011", "/host/gpu-0500?format=json", "/run/last", "/run/last?format=json", "/nights",
    "/trends", "/findings", "/findings/gpu%200.persistence_mode", "/search?q=gpu-09", "/search?q=2026", "/search?q=off",
    "/healthz",
)  # fmt: skip


def dashboard() -> Iterator[Ratio]:
    """Medians against the limit; what the slowest answer took is printed beside them."""
    for name, store in STORES.items():
        with store() as (url, _):
            print(
                f"{name}: {HOSTS * NIGHTS} runs written in {timed(lambda: write(url, HOSTS, NIGHTS)):.0f} s", flush=True
            )
            began = time.perf_counter()
            with serving(url, "--no-token") as server:
                yield Ratio(
                    f"start of serve on {name} / {LIMIT_START:g} s", time.perf_counter() - began, LIMIT_START, 1.0
                )
                yield from _pages(server, f"while it reads on {name}")
                deadline = time.monotonic() + LONGEST
                while server.get("/trends?format=json").document["read"] < HOSTS and time.monotonic() < deadline:
                    time.sleep(1)
                if time.monotonic() >= deadline:
                    sys.exit(f"the figures of {HOSTS} hosts were not read in {LONGEST} s")
                yield from _pages(server, f"on {name}")
                used = psutil.Process(server.process.pid).memory_info().rss / 2**20
                print(f"{name}: the server has {used:.0f} MiB in memory")


def _pages(server: Server, where: str) -> Iterator[Ratio]:
    night = server.get("/nights?format=json").document["nights"][-2]["night"]
    for path in (*PAGES, f"/nights/{night}"):
        seconds = [_seconds(server, path) for _ in range(ROUNDS)]
        what = f"{path} {where} (at most {max(seconds):.2f} s) / {LIMIT_SECONDS:g} s"
        yield Ratio(what, statistics.median(seconds), LIMIT_SECONDS, 1.0)


def _seconds(server: Server, path: str) -> float:
    """One request on a connection of its own, answered whole."""
    parts = urlsplit(server.base)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    size = len(answer.read())
    seconds = time.perf_counter() - began
    connection.close()
    if answer.status != 200 or not size:
        sys.exit(f"{path}: {answer.status}, {size} bytes")
    return seconds
