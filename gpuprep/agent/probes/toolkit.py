"""Does the toolkit work? Compiles and links a small program with the whole tool chain, then runs it on the GPU.

It also tests CUPTI: may an ordinary user read the performance counters?
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Union

from gpuprep.agent.compute import counters
from gpuprep.agent.facts import simulation
from gpuprep.agent.facts.cuda import find_nvcc, nvcc_version
from gpuprep.agent.facts.shells import login_path, which
from gpuprep.agent.probereports import tell
from gpuprep.agent.probes import simulated
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import run
from gpuprep.records import Missing, Source, to_json_value

# The first line that it prints needs no GPU; the last one is "right" only after every value was compared.
KERNEL = r"""
#include <cstdio>
__global__ void twice(float *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= 2.0f;
}
static int failed(const char *where, cudaError_t error) {
    std::printf("%s: %s (%s)\n", where, cudaGetErrorName(error), cudaGetErrorString(error));
    return 1;
}
int main() {
#ifdef __clang__
    std::printf("host compiler: clang %d.%d.%d\n", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    std::printf("host compiler: gcc %d.%d.%d\n", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
    const int count = 100000;
    static float host[count];
    float *values = nullptr;
    for (int i = 0; i < count; i++) host[i] = i;
    cudaError_t error = cudaMalloc(&values, sizeof host);
    if (error != cudaSuccess) return failed("cudaMalloc", error);
    error = cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return failed("cudaMemcpy", error);
    twice<<<(count + 255) / 256, 256>>>(values, count);
    error = cudaGetLastError();
    if (error != cudaSuccess) return failed("kernel launch", error);
    error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return failed("cudaDeviceSynchronize", error);
    error = cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return failed("cudaMemcpy", error);
    for (int i = 0; i < count; i++)
        if (host[i] != 2.0f * i) {
            std::printf("element %d is %g, and must be %g\n", i, host[i], 2.0f * i);
            return 1;
        }
    std::printf("right\n");
    return 0;
}
"""
OUTPUT_LINES = 20
RUN_SECONDS = 60.0


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: timeout_seconds (default 120), arch ("sm_75"; default is nvcc's own).

    Values: docs/records.md, "toolkit".
    """
    path = login_path()
    nvcc = find_nvcc(which("nvcc", path))
    if isinstance(nvcc, Missing):
        return nvcc
    if nvcc is None:
        return Missing("not_installed", "no nvcc on the PATH of a login shell nor under /usr/local/cuda*")
    timeout = float(arguments.get("timeout_seconds", 120))
    arch = arguments.get("arch")
    if arch and not re.fullmatch(r"(sm|compute)_[0-9]{2,3}[a-z]?", str(arch)):  # nvcc makes command lines of it
        return Missing("not_supported", f"{arch!r:.40} is no architecture such as sm_75")
    with ThreadPoolExecutor(1) as beside, children.scratch("toolkit") as place:
        cupti = beside.submit(counters.cupti, simulated=simulation.source() is Source.SIMULATED)
        folder = str(place)
        code = place / "twice.cu"
        code.write_text(KERNEL)
        program = place / "twice"
        argv = [nvcc, *([f"-arch={arch}"] if arch else []), "-o", str(program), str(code)]
        environment = {"PATH": path if isinstance(path, str) else "", "HOME": folder, "TMPDIR": folder, "LC_ALL": "C"}
        started = time.monotonic()
        tell("nvcc", done=0, of=3, unit="steps")
        output = run(argv, timeout=timeout, env=environment, cwd=folder, accept=range(256), merge_stderr=True)
        seconds = time.monotonic() - started
        compiles = program.is_file()
        tell("the program on the GPU", done=1, of=3, unit="steps")
        ran = _run(str(program), folder) if compiles else Missing("not_supported", "nothing was compiled")
        tell("performance counters (CUPTI)", done=2, of=3, unit="steps")
        asked = cupti.result()
    text = output.detail if isinstance(output, Missing) else output
    return {
        "compiles": compiles,
        "nvcc": nvcc,
        "version": to_json_value(nvcc_version(nvcc)),
        "output": "\n".join(text.strip().splitlines()[-OUTPUT_LINES:]),
        "seconds": round(seconds, 3),
        **to_json_value(judged(ran)),
        "cupti": to_json_value(asked),
    }


def _run(program: str, folder: str) -> Union[str, Missing]:
    """The program's output; in a simulated VM the last line is what the simulated GPU would calculate."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C"}
    output = run([program], timeout=RUN_SECONDS, env=environment, cwd=folder, accept=range(256), merge_stderr=True)
    if isinstance(output, Missing) or simulation.source() is not Source.SIMULATED:
        return output
    gpus = simulated.gpus()
    works = bool(gpus) and not any(gpu.lost for gpu in gpus)
    last = "right" if works else "cudaMalloc: no GPU that works" if gpus else "cudaMalloc: no driver is loaded"
    return "\n".join([*output.splitlines()[:1], last])


def judged(output: Union[str, Missing]) -> Dict[str, Any]:
    """The program's output ─► values "runs", "run_output" and "host_compiler"."""
    if isinstance(output, Missing):
        return {"runs": output, "run_output": "", "host_compiler": output}
    lines = output.strip().splitlines()
    compiler = re.match(r"host compiler: (.+)", lines[0]) if lines else None
    runs = bool(lines) and lines[-1] == "right"
    return {
        "runs": runs,
        "run_output": "" if runs else "\n".join(lines[1:][-OUTPUT_LINES:]),
        "host_compiler": compiler.group(1) if compiler else Missing("unparsable", output.strip()[-120:]),
    }
