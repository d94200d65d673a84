"""Outputs of other tools, as they wrote them ─► the document that a file of figures would be.

Read where they have figures that gpuprep judges: nvbandwidth and nccl-tests (text, JSON), gpu-burn (text), SuperBench
(JSON). All others are named, so that nobody looks for a mistake in a file that has none. Only speeds are taken: nothing
is known about the host, as of published figures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuprep.agent.compute import ncclplan
from gpuprep.errors import UsageError
from gpuprep.records.evidence import LARGEST
from gpuprep.untrusted.limits import json_document
from gpuprep.workflows.figures_csv import UNKNOWN_ID

MEASURE = "`gpuprep validate HOST --profile PROFILE` measures; `gpuprep judge --template csv` prints a table to fill in"
NO_SPEED = "it has no speed that gpuprep judges"
MOST_GPUS = 64  # of one file
MOST_NODES = 1000
BEGINNING = 1 << 16  # letters, by which a text is recognised
LONGEST_LINE = 4000  # longer lines are not from these tools; they are not searched, because that takes long
# How the output of a tool begins or what only it has; what it is, and what it lacks.
VERDICTS = "it has DCGM's own verdicts"
NAMED_TEXTS = (
    (r"==NVSMI LOG==|<nvidia_smi_log>|\| NVIDIA-SMI \d", "nvidia-smi", "it shows the state of the GPUs"),
    (r"\A[^\n]*\[(?:MiB|MHz|W|%)\]", "nvidia-smi --query-gpu", "it shows the state of the GPUs"),
    (r"^[ \t]{1,20}GPU0[ \t].{0,2000}CPU Affinity", "nvidia-smi topo", "it shows how the GPUs are linked"),
    (r"^#[ \t]{0,9}gpu[ \t]{1,9}(?:pwr|sm|rxpci|idx)\b", "nvidia-smi dmon or pmon", "it shows clocks over time"),
    (r"Successfully ran diagnostic for group|\| {0,40}Diagnostic {1,40}\| {0,40}Result", "dcgmi diag", VERDICTS),
    (r"\[CUDA Bandwidth Test\]", "bandwidthTest of the CUDA samples", "it says itself that it is no measure"),
)  # fmt: skip
NVBANDWIDTH_TEXT = re.compile(r"^nvbandwidth Version:|^Running (?:benchmark )?\w{1,40}_memcpy_\w{1,40}\.", re.MULTILINE)
NVBANDWIDTH_HOST = {"host_to_device_memcpy_ce": "h2d_gb_per_s", "device_to_host_memcpy_ce": "d2h_gb_per_s"}
NVBANDWIDTH_PEERS = ("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce")
DEVICE = re.compile(r"(?:Device )?(\d{1,3}): ([^()\n]{1,80}?):? *(?:\([0-9A-Fa-f:.]{4,20}\).{0,80})?")
GPU_BURN_GPU = re.compile(r"^GPU (\d{1,3}): (.{1,80}?)(?: \(UUID: (GPU-[0-9A-Za-z-]{1,60})\))?$", re.MULTILINE)
GPU_BURN_BEGINNING = 'its first lines, which say the data type ("using FLOATS")'
GPU_BURN_SIZE = 8192  # its matrices are as large
NCCL_TAG = r"^(?:\[\d+,\d+]<std\w+>: ?|\d{1,5}: )?[# \t]{0,20}"  # of mpirun, of srun, of a comment
LINES = re.MULTILINE | re.ASCII
NCCL_BEGIN = re.compile(rf"{NCCL_TAG}nThread \d+ ", LINES)
GAP = " {1,40}"
NCCL_RANK = re.compile(
    NCCL_TAG + GAP.join(("Rank", r"(\d{1,5})", rf"(?:Group{GAP}(\d{{1,5}}){GAP})?Pid", r"\d{1,10}", "on",
                         r"(\S{1,255})", "device", r"\d{1,5}", r"\[[^]\n]{1,30}]", r"([^\n]{1,80})$")), LINES,
)  # fmt: skip
NCCL_ROW = re.compile(NCCL_TAG + GAP.join((r"(\d{1,15})", r"\d{1,15}", r"[a-z]\w{1,15}", r"([^\n#]{20,200})$")), LINES)
NCCL_NAME = re.compile(r"(?<!concluded: )\b([a-z_]{3,40})_perf\b")
CPU_TIME = "cputime"  # above the column of times that are the CPU's
NCCL_LEAST = 1.0  # GB/s: of less, its two decimals do not say enough
SUMS = ("all_reduce", "reduce_scatter")
NCCL_RANKS = (
    'its lines "Rank 0 ... device 0" do not list each GPU of one machine once, and so not which links were used'
)
SUPERBENCH = re.compile(r"(?:^|/)([a-z0-9_]+):(\d{1,3})$")
# Of cuBLAS on Tensor Cores, except FP32. What it calls fp64 and fp16 ran without them: no floor is for that.
SUPERBENCH_PRODUCTS = {
    "fp64_tc_flops": "fp64", "fp32_flops": "fp32", "tf32_tc_flops": "tf32", "fp16_tc_flops": "fp16",
    "bf16_tc_flops": "bf16", "int8_tc_iops": "int8",
}  # fmt: skip
SUPERBENCH_COPIES = {"h2d_bw": "h2d_gb_per_s", "d2h_bw": "d2h_gb_per_s", "d2d_bw": "copy_gb_per_s"}
SUPERBENCH_SIZE = 16384

Gpu = dict[str, Any]


def of_text(path: Path, text: str, gpu: str = "") -> dict[str, Any] | None:
    """The figures of a tool's text; None if it is of no tool that is known. Raises UsageError if it has no figure.

    `gpu`: the model of GPUs that the tool does not name; "" if nobody says it.
    """
    if (read := _text_read(path, text)) is not None:
        return _with_gpu(read, gpu)
    for pattern, tool, what in NAMED_TEXTS:
        if re.search(pattern, text[:BEGINNING], re.MULTILINE):
            raise _named(path, tool, what)
    return None


def _text_read(path: Path, text: str) -> dict[str, Any] | None:
    if NVBANDWIDTH_TEXT.search(text):
        return _nvbandwidth(path, _devices(text.splitlines()), list(_sections(text)))
    if "proc'd:" in text and "Gflop/s" in text:
        return _gpu_burn(path, text)
    if NCCL_BEGIN.search(text) or "# Avg bus bandwidth" in text:
        return _nccl_tests(path, text)
    runs = _superbench_lines(path, text)
    return {"runs": runs} if runs else None


def _with_gpu(read: dict[str, Any], gpu: str) -> dict[str, Any]:
    """`read`, in which a GPU that nobody named has the name `gpu`; what is published says so."""
    for run in read.get("runs", [read]) if gpu else ():
        for values in (measurement["values"] for measurement in run["measurements"]):
            nameless = [entry for entry in values["gpus"] if not entry["name"]]
            for entry in nameless:
                entry["name"] = gpu
            values["published"] += f"; the GPU by the profile: {gpu}" if nameless else ""
    return read


def of_json(path: Path, document: Mapping[str, Any], gpu: str = "") -> dict[str, Any] | None:
    """As of_text, of a tool's JSON."""
    own = document.get("nvbandwidth")
    if isinstance(own, dict):
        listed = own.get("GPU Device list", own.get("GPU Device info", ()))
        lines = listed if isinstance(listed, list) else [listed]
        names = [line for line in lines if isinstance(line, str)]
        read = _nvbandwidth(path, _devices(names), list(_cases(own.get("testcases"))), str(own.get("Version", "")))
        return _with_gpu(read, gpu)
    if "nccl_version" in document and isinstance(document.get("config"), dict):
        return _with_gpu(_nccl_tests(path, _nccl_text(document, document["config"])), gpu)
    if any(key.startswith("DCGM") for key in document):
        raise _named(path, "dcgmi diag", VERDICTS)
    if any(SUPERBENCH.search(key) for key in document):
        return _with_gpu(_superbench(path, document), gpu)
    return None


def _named(path: Path, tool: str, what: str) -> UsageError:
    return UsageError(f"{path}: this is the output of {tool}: {what}, and {NO_SPEED}", MEASURE)


def _figures(path: Path, tool: str, **probes: Mapping[str, Any]) -> dict[str, Any]:
    """The document: the values of each probe that has GPUs."""
    measurements = [
        {"probe": probe, "source": "measured", "values": {"published": tool, **values}}
        for probe, values in probes.items()
        if values["gpus"]
    ]
    if not measurements:
        raise _named(path, tool, "gpuprep reads it")
    return {"measurements": measurements}


def _speed(value: object, unit: float = 1.0) -> float | None:
    """A figure above 0, in the unit that gpuprep has; None for "N/A" and whatever else is none."""
    try:
        speed = float(value) / unit if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except ValueError:
        return None
    return speed if 0 < speed < LARGEST else None


# ---------------------------------------------------------------- nvbandwidth


Matrix = list[list[float | None]]


def _devices(lines: Sequence[str]) -> dict[int, str]:
    short = [line.strip() for line in lines[:10_000] if len(line) < 300]
    found = [match for line in short if (match := DEVICE.fullmatch(line))]
    return {int(match[1]): match[2].strip() for match in found[:MOST_GPUS]}


def _sections(text: str) -> Iterator[tuple[str, str, Matrix]]:
    """(test, what its rows and columns are, figures) of each test in the text."""
    for part in re.split(r"^Running (?:benchmark )?", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.splitlines()
        rows = [line.split()[1:] for line in lines[2:] if re.match(r"\s*\d+\s+(?:N/A|[\d.]+)", line)]
        yield name.strip().rstrip("."), lines[0] if lines else "", [[_speed(cell) for cell in row] for row in rows]


def _cases(listed: object) -> Iterator[tuple[str, str, Matrix]]:
    for case in listed if isinstance(listed, list) else []:
        matrix = case.get("bandwidth_matrix") if isinstance(case, dict) else None
        if isinstance(matrix, list) and case.get("status", "Passed") == "Passed":
            rows = [row for row in matrix if isinstance(row, list)]
            words = str(case.get("bandwidth_description", ""))
            yield str(case.get("name", "")), words, [[_speed(cell) for cell in row] for row in rows]


def _nvbandwidth(
    path: Path, names: Mapping[int, str], tests: Sequence[tuple[str, str, Matrix]], version: str = ""
) -> dict[str, Any]:
    speeds: dict[int, dict[str, float]] = {}
    peers: dict[tuple[int, int], float] = {}
    for name, words, rows in tests:
        if name in NVBANDWIDTH_HOST and rows:
            for gpu, speed in enumerate(rows[0][:MOST_GPUS]):
                if speed is not None:
                    speeds.setdefault(gpu, {})[NVBANDWIDTH_HOST[name]] = speed
        if name in NVBANDWIDTH_PEERS:
            for row, cells in enumerate(rows[:MOST_GPUS]):
                for column, speed in enumerate(cells[:MOST_GPUS]):
                    pair = (column, row) if "(row) <- GPU" in words else (row, column)
                    if speed is not None and row != column:
                        peers[pair] = max(speed, peers.get(pair, 0.0))
    seen = sorted({*speeds, *(gpu for pair in peers for gpu in pair)})
    gpus = [_gpu(gpu, names.get(gpu, "")) | speeds.get(gpu, {}) for gpu in seen]
    copies = [
        {"from": start, "to": end, "can_access": True, "gb_per_s": speed} for (start, end), speed in peers.items()
    ]
    values = {"gpus": gpus, **({"peers": copies} if copies else {})}
    return _figures(path, f"nvbandwidth {version}".strip(), bandwidth=values)


def _gpu(index: int, name: str, uuid: str = "") -> Gpu:
    known: Gpu = {} if name else {"pci_device_id": UNKNOWN_ID}  # a GPU that nobody named is UNKNOWN
    return {"index": index, "name": name, **known, **({"uuid": uuid} if uuid else {})}


# ---------------------------------------------------------------- gpu-burn


def _gpu_burn(path: Path, text: str) -> dict[str, Any]:
    """The last reading of each GPU. Which data type it was is in what gpu-burn prints first: "using FLOATS"."""
    named = {int(gpu[1]): gpu for gpu in list(GPU_BURN_GPU.finditer(text))[:MOST_GPUS]}
    types = {"DOUBLES": "fp64", "FLOATS, using Tensor Cores": "tf32", "FLOATS": "fp32"}
    dtype = next((dtype for words, dtype in types.items() if f"using {words}" in text), None)
    speeds: dict[int, float] = {}
    errors: dict[int, bool] = {}
    for line in text.splitlines():
        figures, _, rest = line.partition("proc'd:")[2].partition("errors:")
        if not rest or len(line) > LONGEST_LINE:
            continue
        for gpu, told in enumerate(re.findall(r"\(([\d.]{1,20}) Gflop/s\)", figures)[:MOST_GPUS]):
            if speed := _speed(told, 1000):
                speeds[gpu] = speed
        counts = rest.partition("temps:")[0].replace(" - ", " ")
        for gpu, count in enumerate(re.findall(r"-?\d+", counts)[:MOST_GPUS]):
            errors[gpu] = errors.get(gpu, False) or count != "0"
    faulty = {int(gpu) for gpu in re.findall(r"^[ \t]{0,9}GPU (\d{1,3}): FAULTY", text, re.MULTILINE)}
    gpus = []
    for gpu, speed in speeds.items():
        name, uuid = (named[gpu][2], named[gpu][3] or "") if gpu in named else ("", "")
        product: Gpu = {"m": GPU_BURN_SIZE, "n": GPU_BURN_SIZE, "k": GPU_BURN_SIZE, "tflops": speed}
        product |= {"dtype": dtype} if dtype else {}
        product |= {"exact": False} if errors.get(gpu) or gpu in faulty else {}
        gpus.append(_gpu(gpu, name, uuid) | {"gemms": [product]})
    tool = "gpu-burn" if dtype else f"gpu-burn without {GPU_BURN_BEGINNING}"
    return _figures(path, tool, gemm={"gpus": gpus})


# ---------------------------------------------------------------- nccl-tests


def _nccl_tests(path: Path, text: str) -> dict[str, Any]:
    """A run for each set of GPUs."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    before, *parts = NCCL_BEGIN.split(text, MOST_NODES)
    for part in parts:
        rows = [row for row in itertools.islice(NCCL_ROW.finditer(part), MOST_NODES) if 8 <= len(row[2].split()) <= 10]
        ranks = {int(rank[1]): rank for rank in NCCL_RANK.finditer(part)}
        if rows:
            one_machine = len({(rank[2], rank[3]) for rank in ranks.values()}) == 1
            if (
                not one_machine
                or len(NCCL_RANK.findall(part)) != len(ranks)
                or max(ranks) >= min(len(ranks), MOST_GPUS)
            ):
                raise _named(path, "nccl-tests", NCCL_RANKS)
            named = NCCL_NAME.findall(before)
            points = [_nccl_point(row, counts="#wrong" in part) for row in rows]
            if CPU_TIME in part:  # with -C; the speeds are of the collective all the same
                points = [{key: figure for key, figure in point.items() if key != "microseconds"} for point in points]
            collective = named[-1] if named else _collective(rows[-1], len(ranks))
            gpus = tuple(ranks[rank][4].strip(" ?") for rank in sorted(ranks))
            runs.setdefault(gpus, []).extend({"operation": collective, **point} for point in points)
        before = part
    if not runs:
        raise _named(path, "nccl-tests", "its table and its lines of ranks are not in it")
    made = [
        _figures(path, "nccl-tests", nccl={"gpus": [_gpu(at, name) for at, name in enumerate(gpus)], "points": points})
        for gpus, points in runs.items()
    ]
    return {"runs": made} if len(made) > 1 else made[0]


def _nccl_text(document: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """What nccl-tests prints beside the file that `-J` asks for (version 3; src/util.cu). Its environment is not read.

    Without MPI the file lists the first GPU of the process alone: the others are there without a name.
    """

    def listed(of: object) -> list[dict[str, Any]]:
        return [one for one in of if isinstance(one, dict)][:MOST_NODES] if isinstance(of, list) else []

    def words(of: Mapping[str, Any], *keys: str) -> str:
        return " ".join("".join(str(of.get(key, "?")).split()) or "?" for key in keys)

    devices = listed(config.get("devices"))
    ranks = {str(one.get("rank")): (words(one, "hostname"), str(one.get("device_info"))) for one in devices}
    threads, gpus = config.get("nthreads"), config.get("ngpus")
    if len(devices) == 1 and isinstance(threads, int) and isinstance(gpus, int):
        ranks |= {str(at): (words(devices[0], "hostname"), "?") for at in range(1, min(threads * gpus, MOST_GPUS))}
    lines = [f"# Rank {rank} Pid 1 on {host} device 0 [0] {name}" for rank, (host, name) in ranks.items()]
    results = listed(document.get("results"))
    by_cpu = any(isinstance(side, dict) and "cpu_time" in side for row in results for side in row.values())
    time, title = ("cpu_time", CPU_TIME) if by_cpu else ("time", "time")
    for row in results:
        sides = (row.get(side) for side in ("out_of_place", "in_place"))
        timed = ({} if not isinstance(side, dict) else side for side in sides)
        figures = (words(side, time, "alg_bw", "bus_bw", "nwrong") for side in timed)
        lines.append(" ".join((words(row, "size", "count", "type", "redop", "root"), *figures)))
    arguments = document.get("args")
    begin = (*map(str, arguments[:1] if isinstance(arguments, list) else ()), f"nThread 1 {title} #wrong")
    return "\n".join((*begin, *lines))


def _nccl_point(row: re.Match[str], *, counts: bool) -> dict[str, Any]:
    """The figures in place, as gpuprep measures them; where there are none, those out of place."""
    out_of_place, in_place = row[2].split()[-8:-4], row[2].split()[-4:]
    taken, algbw, busbw = map(_speed, (in_place if _speed(in_place[0]) else out_of_place)[:3])
    point: dict[str, Any] = {"bytes": int(row[1])} | ({"microseconds": taken} if taken else {})
    if algbw and busbw and busbw >= NCCL_LEAST:
        point |= {"algbw_gb_per_s": algbw, "busbw_gb_per_s": busbw}
    wrong = [_speed(cells[3]) for cells in (out_of_place, in_place)] if counts else []
    return point | ({"wrong": int(max(found))} if (found := [count for count in wrong if count]) else {})


def _collective(row: re.Match[str], ranks: int) -> str:
    """Which collective it was where nobody says it: only those with a sum differ in their figures."""
    point, words = _nccl_point(row, counts=False), row[2].split()[:-8]
    factor = point.get("busbw_gb_per_s", 0.0) / point.get("algbw_gb_per_s", 1.0)
    adds = words[:1] not in ([], ["none"]) and words[1:] in ([], ["-1"])
    fitting = (name for name in SUMS if abs(factor - ncclplan.bus_factor(name, ranks)) < 0.03 * factor)
    return next(fitting, "?") if adds else "?"


# ---------------------------------------------------------------- SuperBench


def _superbench_lines(path: Path, text: str) -> list[dict[str, Any]]:
    """results-summary.jsonl has a line for each node. [] for other texts."""
    lines = [line for line in text.splitlines()[: MOST_NODES + 1] if line.strip()]
    if not 1 < len(lines) <= MOST_NODES or not all(line.startswith("{") for line in lines):
        return []
    try:
        documents = [json_document(line) for line in lines]
    except ValueError:
        return []
    known = all(any(SUPERBENCH.search(key) for key in document) for document in documents)
    return [_superbench(path, document) for document in documents] if known else []


def _superbench(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """`gemm-flops/fp16_tc_flops:0`: GFLOPS of the GPU 0, which it does not name."""
    products: dict[int, list[Gpu]] = {}
    copies: dict[int, dict[str, float]] = {}
    for key, value in document.items():
        told = SUPERBENCH.search(key)
        if told is None or int(told[2]) >= MOST_GPUS:
            continue
        metric, gpu = told[1], int(told[2])
        side = dict.fromkeys(("m", "n", "k"), SUPERBENCH_SIZE)
        if metric in SUPERBENCH_PRODUCTS and (speed := _speed(value, 1000)):
            products.setdefault(gpu, []).append({"dtype": SUPERBENCH_PRODUCTS[metric], **side, "tflops": speed})
        if metric in SUPERBENCH_COPIES and (speed := _speed(value)):
            copies.setdefault(gpu, {})[SUPERBENCH_COPIES[metric]] = speed
    gemm = {"gpus": [_gpu(gpu, "") | {"gemms": listed} for gpu, listed in products.items()]}
    bandwidth = {"gpus": [_gpu(gpu, "") | speeds for gpu, speeds in copies.items()]}
    read = _figures(path, "SuperBench", gemm=gemm, bandwidth=bandwidth)
    host = document.get("node")
    return ({"host": host} if isinstance(host, str) and host else {}) | read
