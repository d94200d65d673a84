"""Runs convolutions with the cuDNN that a program on this machine would load; checks them against FP64 on the host."""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

from gpuprep.agent.compute import convolution, cudacalls, libraries
from gpuprep.agent.compute.convolution import SHAPE, TOLERANCE, Shape
from gpuprep.agent.compute.cudacalls import Cuda, Timer
from gpuprep.agent.facts import simulation
from gpuprep.agent.facts.loader import Loader
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.probereports import measured, tell
from gpuprep.agent.probes import simulated
from gpuprep.agent.probes.gpuforms import named
from gpuprep.agent.programs.run import run
from gpuprep.records import Missing, Source, to_json_value

Median = Callable[[Callable[[], None]], float]  # work put into the stream ─► seconds that it takes
FRONTEND = "nvidia-cudnn-frontend"
CASES = (("fp16", "NHWC"), ("fp16", "NCHW"), ("fp32", "NHWC"), ("fp32", "NCHW"))
SECONDS = 0.2  # of each case's timing: thousands of convolutions
QUICK_SECONDS = 0.05
VERSION_SCRIPT = """
import ctypes, sys
asked = ctypes.CDLL(sys.argv[1]).cudnnGetVersion
asked.restype = ctypes.c_size_t
print(asked())
"""
SIMULATED_SHARE = 0.6  # of what the same GPU reaches in a matrix product


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: quick (bool). Values: docs/records.md, "cudnn". Uses the first GPU and takes a few seconds."""
    soname = installed_name()
    if isinstance(soname, Missing):
        return soname
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(version_of, soname)
        if simulation.source() is not Source.SIMULATED:
            cudacalls.open_cuda()  # its libraries load while the other process loads cuDNN
        version = asked.result()
    if isinstance(version, Missing):
        return version
    tell("loading cuDNN")
    library = ctypes.CDLL(soname)
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing) or not gpus:
            return gpus if isinstance(gpus, Missing) else Missing("driver_not_loaded", "NVML counts no GPU")
        facts = gpus[0].facts()
        measured(named(facts), "gpu")
        if simulation.source() is Source.SIMULATED:
            model = simulated.gpus()[0]
            cases: Any = [_simulated(model, dtype, layout) for dtype, layout in _simulated_cases()]
        else:
            cases = _real(library, facts.uuid, QUICK_SECONDS if arguments.get("quick") else SECONDS)
    if isinstance(cases, Missing):
        return cases
    names = ("cudnn", "cudart", "nvrtc", "cublasLt", "cuda")
    return {
        "quick": bool(arguments.get("quick")),
        "libraries": to_json_value(libraries.loaded({"cudnn": version}, names=names)),
        "bindings": cudacalls.versions((FRONTEND, *cudacalls.BINDINGS, "numpy")),
        "gpu": named(facts),
        "convolutions": cases,
    }


def installed_name(loader: Union[Loader, None] = None) -> Union[str, Missing]:
    """The soname that the loader has, such as libcudnn.so.9. Loaded by name, to test which library comes first."""
    path = (loader or Loader()).find_newest("libcudnn.so")
    if isinstance(path, Missing):
        return path
    if path is None:
        return Missing("not_installed", "the loader finds no libcudnn")
    return ".".join(path.rpartition("/")[2].split(".")[:3])  # of libcudnn.so.9.10.2


def version_of(soname: str) -> Union[str, Missing]:
    """cudnnGetVersion as text, called in another process: if a part of cuDNN is missing, it aborts the process."""
    output = run([sys.executable, "-I", "-S", "-B", "-c", VERSION_SCRIPT, soname], env=dict(os.environ))
    if isinstance(output, Missing):
        return output
    return (
        version_words(int(output)) if output.strip().isdigit() else Missing("unparsable", f"{soname}: {output.strip()}")
    )


def version_words(number: int) -> str:
    """cudnnGetVersion's number as text: 91002 is 9.10.2, and 8907 is 8.9.7 in the form of cuDNN 8."""
    thousands = 10000 if number >= 90000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


def _real(library: ctypes.CDLL, uuid: str, seconds: float) -> Any:
    cuda = cudacalls.open_cuda()
    if isinstance(cuda, Missing):
        return cuda
    try:
        frontend, numpy = importlib.import_module("cudnn"), importlib.import_module("numpy")
    except ModuleNotFoundError as error:
        return Missing("not_installed", f"the agent's environment has no {error.name} ({FRONTEND} and numpy)")
    except (ImportError, OSError) as error:
        return Missing("command_failed", f"{FRONTEND}: {error}")
    # The frontend would prefer a library in Python's packages; this is the one that programs get.
    frontend._pybind_module._set_dlhandle_cudnn(library._handle)
    try:
        timer = Timer(cuda, cuda.device(uuid))
        handle = frontend.create_handle()
        frontend.set_stream(handle=handle, stream=int(timer.stream.handle))
    except cuda.errors as error:
        return Missing("command_failed", str(error))
    median = functools.partial(timer.median, seconds=seconds)
    errors = (*cuda.errors, frontend.cudnnGraphNotSupportedError)
    rows: List[Dict[str, Any]] = []
    for dtype, layout in _simulated_cases():
        rows.append(_case(cuda, frontend, numpy, median, handle, dtype, layout, errors))
        measured(rows[-1], "convolutions", len(rows) - 1)
    return rows


def _simulated_cases() -> Iterator[Tuple[str, str]]:
    """Each of CASES, reported as progress before it is used."""
    for number, (dtype, layout) in enumerate(CASES):
        tell(f"{dtype} {layout}", done=number, of=len(CASES), unit="convolutions")
        yield dtype, layout


def _case(
    cuda: Cuda, frontend: Any, numpy: Any, median: Median, handle: Any, dtype: str, layout: str, errors: Tuple[Any, ...]
) -> Dict[str, Any]:
    case: Dict[str, Any] = {
        "dtype": dtype,
        "layout": layout,
        "shape": str(SHAPE),
        "error_tolerance": TOLERANCE[dtype],
        "error": None,
    }
    addresses: Dict[str, int] = {}
    try:
        seconds, error = _convolve(cuda, frontend, numpy, median, handle, dtype, layout, addresses)
        case.update(
            microseconds=round(seconds * 1e6, 2),
            tflops=round(SHAPE.operations / seconds / 1e12, 2),
            max_relative_error=float(f"{error:.3g}") if math.isfinite(error) else None,
        )
        if not math.isfinite(error):
            case["error"] = "the result holds values that are no numbers"
    except errors as failed:
        case["error"] = str(failed).strip()
    finally:
        for address in addresses.values():
            cuda.free(address)
    return case


def _convolve(
    cuda: Cuda,
    frontend: Any,
    numpy: Any,
    median: Median,
    handle: Any,
    dtype: str,
    layout: str,
    addresses: Dict[str, int],
) -> Tuple[float, float]:
    """(seconds, largest error relative to the largest output). Appends to `addresses` what the caller must free."""
    pictures, filters = convolution.inputs(numpy, SHAPE, dtype)
    graph, tensors = _graph(frontend, handle, dtype, layout)
    element = 2 if dtype == "fp16" else 4
    size = SHAPE.images * SHAPE.filters * SHAPE.height * SHAPE.width * element
    for name, values in (("x", pictures), ("w", filters)):
        data = convolution.laid_out(numpy, values, layout)
        addresses[name] = cuda.allocate(data.nbytes)
        cuda.upload(addresses[name], data)
    addresses["y"] = cuda.allocate(size)
    cuda.call("cuMemsetD8", cuda.driver.CUdeviceptr(addresses["y"]), 0xFF, size)  # not-a-numbers
    addresses["workspace"] = cuda.allocate(max(int(graph.get_workspace_size()), 16))
    pack = {tensors[name]: addresses[name] for name in ("x", "w", "y")}

    def work() -> None:
        graph.execute(pack, addresses["workspace"], handle=handle)

    seconds = median(work)
    raw = numpy.frombuffer(cuda.download(addresses["y"], size), dtype=numpy.float16 if element == 2 else numpy.float32)
    n, k, h, w = SHAPE.images, SHAPE.filters, SHAPE.height, SHAPE.width
    got = raw.reshape(n, k, h, w) if layout == "NCHW" else raw.reshape(n, h, w, k).transpose(0, 3, 1, 2)
    return seconds, convolution.sampled_error(SHAPE, _channels(pictures), _channels(filters), _value(got))


def _channels(table: Any) -> convolution.Channels:
    def channels(number: int, row: int, column: int) -> List[float]:
        values: List[float] = table[number, :, row, column].tolist()
        return values

    return channels


def _value(table: Any) -> convolution.Value:
    def value(*place: int) -> float:
        return float(table[place])

    return value


def _graph(frontend: Any, handle: Any, dtype: str, layout: str) -> Tuple[Any, Dict[str, Any]]:
    """(a built graph of one convolution, its tensors x, w and y)."""
    shape: Shape = SHAPE
    kind = frontend.data_type.HALF if dtype == "fp16" else frontend.data_type.FLOAT
    float32 = frontend.data_type.FLOAT
    graph = frontend.pygraph(
        handle=handle, io_data_type=kind, intermediate_data_type=float32, compute_data_type=float32
    )
    x_dim = (shape.images, shape.channels, shape.height, shape.width)
    w_dim = (shape.filters, shape.channels, shape.kernel, shape.kernel)
    x = graph.tensor(name="x", dim=list(x_dim), stride=convolution.strides(x_dim, layout), data_type=kind)
    w = graph.tensor(name="w", dim=list(w_dim), stride=convolution.strides(w_dim, layout), data_type=kind)
    y = graph.conv_fprop(
        image=x, weight=w, padding=[shape.padding] * 2, stride=[1, 1], dilation=[1, 1], compute_data_type=float32
    )
    y_dim = (shape.images, shape.filters, shape.height, shape.width)
    y.set_output(True).set_data_type(kind).set_dim(list(y_dim)).set_stride(convolution.strides(y_dim, layout))
    graph.build([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
    return graph, {"x": x, "w": w, "y": y}


def _simulated(model: simulated.SimulatedGpu, dtype: str, layout: str) -> Dict[str, Any]:
    case = {"dtype": dtype, "layout": layout, "shape": str(SHAPE), "error_tolerance": TOLERANCE[dtype], "error": None}
    if model.lost:
        return {**case, "error": "the GPU is lost"}
    tflops = model.tflops(dtype)
    if isinstance(tflops, Missing):
        return {**case, "error": tflops.detail}
    with model.load(dtype):
        reached = tflops * SIMULATED_SHARE
    return {
        **case,
        "microseconds": round(SHAPE.operations / reached / 1e6, 2),
        "tflops": round(reached, 2),
        "max_relative_error": 0.0005,
    }
