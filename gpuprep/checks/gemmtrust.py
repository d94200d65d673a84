"""Can we trust the figures of a GPU: right results, no other process, clock not limited, the right library?"""

from __future__ import annotations

import posixpath

from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import is_version, parse
from gpuprep.checks import gpuprocesses
from gpuprep.checks.common import REMEDIES
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.gemmrecord import Gpu, masks, shape_of
from gpuprep.performance.clock_events import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, SYNC_BOOST, named
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.decode import is_no_number
from gpuprep.records.evidence.gemm import Gemm, Product

GRAVE = HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE
LOWERED = 0.97  # of the own power limit: less was set on purpose
MANY_SAMPLES = 20  # one sample of so many is a passing moment
SHOW_PROVIDER = "look at the machine's cooling and power supply; in a cloud, show the provider this report"


def results(gpu: Gpu) -> list[Finding]:
    """FAIL for wrong results; UNKNOWN for results that were not compared."""
    ran = [gemm for gemm in gpu.gemms if not gemm.error]
    wrong = [said for said in map(_wrong, ran) if said]
    expected = "exact, or within the tolerance of the data type"
    if wrong:
        return [Finding(gpu.subject, "gemm_results", Status.FAIL, expected, f"{len(wrong)} of {len(ran)} wrong",
                        f"wrong results: {'; '.join(wrong[:3])}",
                        "do not calculate on this GPU; stop the machine and start it again (another GPU), and show the "
                        "provider this report")]  # fmt: skip
    unproven = [gemm for gemm in ran if not _right(gemm)]
    if unproven or not ran:
        named_first = f"{unproven[0].dtype} {shape_of(unproven[0])}" if unproven else "nothing"
        why = f"{len(unproven)} of {len(ran)} results were not compared with anything ({named_first})"
        return [Finding(gpu.subject, "gemm_results", Status.UNKNOWN, expected, "not compared", why, "measure again")]
    return [Finding(gpu.subject, "gemm_results", Status.PASS, expected, f"{len(ran)} right")]


def _wrong(gemm: Product) -> str:
    what = f"{gemm.dtype} {shape_of(gemm)}"
    if gemm.exact is False:
        return f"{what} differs from the exact result"
    error, tolerance = gemm.max_relative_error, _tolerance(gemm)
    if is_no_number(error):
        return f"{what} has results that are no numbers, or beyond every bound"
    if isinstance(error, Missing):
        return ""
    if error < 0:
        return f"{what} has an error of {error:.2g}, which cannot be"
    if tolerance is not None and error > tolerance:
        return f"{what} is off by {error:.2g}, and {tolerance:.2g} is allowed"
    return ""


def _tolerance(gemm: Product) -> float | None:
    """gpuprep's own: a record cannot allow itself more. None for a data type that gpuprep does not measure."""
    added = "fp16" if gemm.accumulate == "fp16" else ""
    own = [kind.tolerance for kind in TYPES if kind.dtype == gemm.dtype and (kind.accumulate == "fp16") == bool(added)]
    read = [] if isinstance(gemm.error_tolerance, Missing) else [gemm.error_tolerance]
    return min([*own, *read], default=None) if own else None


def _right(gemm: Product) -> bool:
    error, tolerance = gemm.max_relative_error, _tolerance(gemm)
    within = not isinstance(error, Missing) and tolerance is not None and 0 <= error <= tolerance
    return gemm.exact is True or within


def errors(gpu: Gpu) -> list[Finding]:
    """Products that failed; none is no finding."""
    failed = [gemm for gemm in gpu.gemms if gemm.error]
    whole = gpu.measured.error
    if not failed and not whole and not gpu.unreadable:
        return []
    said = [whole] if whole else []
    said += [f"{gpu.unreadable} entries are no products"] if gpu.unreadable else []
    said += [f"{gemm.dtype} {shape_of(gemm)}: {gemm.error}" for gemm in failed[:3]]
    lost = "lost" in whole or any("lost" in gemm.error for gemm in failed)
    status = Status.FAIL if lost else Status.UNKNOWN
    count = len(failed) + gpu.unreadable
    shown = f"{count} of {len(gpu.gemms) + gpu.unreadable} failed" if count else "failed"
    remedy = REMEDIES["gpu_is_lost"] if lost else "mend what the message names, then measure again"
    return [Finding(gpu.subject, "gemm_errors", status, "every product runs", shown, "; ".join(said), remedy)]


def alone(gpu: Gpu) -> tuple[str, list[Finding]]:
    """(why the figures do not count, the finding): another process on the GPU makes them too low."""
    listed = gpu.measured.other_processes
    expected = "no other process on the GPU"
    remedy = "stop what uses the GPU (nvidia-smi shows it), then measure again"
    if isinstance(listed, Missing):
        why = f"whether another process used the GPU is not known{f' ({listed.detail})' if listed.detail else ''}"
        return why, [Finding(gpu.subject, "alone", Status.UNKNOWN, expected, "not known", why, remedy)]
    if not listed:
        return "", [Finding(gpu.subject, "alone", Status.PASS, expected, "none")]
    names = ", ".join(
        "an entry that is none" if isinstance(one, Missing) else gpuprocesses.named(one) for one in listed[:3]
    )
    why = f"another process used the GPU while it was measured: {names}"
    return why, [Finding(gpu.subject, "alone", Status.UNKNOWN, expected, names, why, remedy)]


def slowdowns(gpu: Gpu) -> list[Finding]:
    """Hardware slowdowns fail; heat warns; the power cap is how these cards work under load."""
    expected = "no slowdown by heat or by the hardware"
    read = [mask for gemm in gpu.gemms if not gemm.error for mask in masks(gemm)]
    known = [mask for mask in read if mask is not None]
    seen = 0
    for mask in [*known, *_sampled(gpu)]:
        seen |= mask
    shown = ", ".join(reason.name for reason in named(seen)) or "none"
    if seen & GRAVE:
        hits, samples = _samples(gpu, GRAVE)
        passing = samples >= MANY_SAMPLES and hits <= 1 and sum(bool(mask & GRAVE) for mask in known) <= 1
        said = f" in {hits} of {samples} samples" if samples else ""
        why = f"{', '.join(r.name for r in named(seen & GRAVE))} while it was measured{said}"
        return [Finding(gpu.subject, "slowdowns", Status.WARN if passing else Status.FAIL, expected, shown, why,
                        SHOW_PROVIDER)]  # fmt: skip
    if not known or len(known) < len(read):
        why = "why the clock was what it was could not be read (NVML's event reasons)"
        return [Finding(gpu.subject, "slowdowns", Status.UNKNOWN, expected, "not readable", why, "measure again")]
    if seen & SW_THERMAL:
        why = "the driver lowered the clock because of heat while it was measured"
        return [Finding(gpu.subject, "slowdowns", Status.WARN, expected, shown, why, "look at the machine's cooling")]
    if seen & SYNC_BOOST:
        why = "a slower GPU of its sync boost group kept the clock low while it was measured"
        return [Finding(gpu.subject, "slowdowns", Status.WARN, expected, shown, why,
                        "take the GPUs out of the sync boost group (dcgmi config), and measure again")]  # fmt: skip
    return [Finding(gpu.subject, "slowdowns", Status.PASS, expected, shown)]


def power_limit(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    """WARN where figures of a host that nobody looked at were measured below the board's own power limit.

    Of a host that was looked at, `power_limit` of its settings says so.
    """
    limit, own = gpu.measured.power_limit_watts, gpu.facts.power_watts if gpu.facts else None
    asked = evidence.wanted.tuning.power_limit_watts != "default"
    if asked or evidence.facts(gpu.measured) or isinstance(limit, Missing) or not own or limit >= LOWERED * own:
        return []
    expected, why = f"{own:g} W", f"the power limit was {limit:g} W while it was measured, and the board has {own:g} W"
    return [Finding(gpu.subject, "gemm_power_limit", Status.WARN, expected, f"{limit:g} W", why,
                    "set the board's own limit (tuning.power_limit_watts: default) and measure again")]  # fmt: skip


def _sampled(gpu: Gpu) -> list[int]:
    """The event reasons of every sample of telemetry."""
    parts = [part for gemm in gpu.gemms for part in (gemm, gemm.sustained)]
    read = [part.telemetry for part in parts if part and not isinstance(part, Missing) and part.telemetry]
    return [int(mask) for one in read for mask in one.event_reasons if mask is not None and mask >= 0]


def _samples(gpu: Gpu, bits: int) -> tuple[int, int]:
    """(samples with one of these bits, samples in all) of every telemetry."""
    hits = samples = 0
    for gemm in gpu.gemms:
        for part in (gemm, gemm.sustained):
            telemetry = None if part is None or isinstance(part, Missing) else part.telemetry
            read = [int(mask) for mask in telemetry.event_reasons if mask is not None] if telemetry else []
            samples += len(read)
            hits += sum(1 for mask in read if mask & bits)
    return hits, samples


def library(values: Gemm) -> Finding:
    """The cuBLASLt that ran is the installed toolkit's: a figure of a bundled one says nothing of the installation."""
    folders, version = values.toolkit.library_dirs, values.toolkit.version
    named_so = [lib for lib in values.libraries if lib.name.lower().removeprefix("lib") == "cublaslt"]
    # Where several were loaded, one that is not the toolkit's is what to tell.
    strangers = [lib for lib in named_so if not any(_inside(lib.path, folder) for folder in folders)]
    loaded = next(iter([*strangers, *named_so]), None)
    expected = f"CUDA {version}'s, in {' or '.join(folders)}" if folders else "the installed toolkit's"
    remedy = "take the folder out of LD_LIBRARY_PATH or of the agent's environment; gpuprep provision sets the loader's"
    path = loaded.path if loaded else ""
    if not path or not folders:
        what = "where the toolkit's libraries are" if path else "which cuBLASLt was loaded"
        return Finding("cuda", "cublaslt", Status.UNKNOWN, expected, "not recorded", f"{what} is not recorded",
                       "measure again")  # fmt: skip
    own = (loaded.version if loaded else None) or ""
    shown = f"{path} ({own or 'version not known'})"
    if not any(_inside(path, folder) for folder in folders):
        why = f"the products ran with {path}, not with the installed toolkit's libraries in {' or '.join(folders)}"
        return Finding("cuda", "cublaslt", Status.FAIL, expected, shown, why, remedy)
    majors = [parse(text)[:1] if is_version(text) else () for text in (own, version)]
    if not all(majors):
        why = "the version of the loaded cuBLASLt or of the toolkit is not recorded"
        return Finding("cuda", "cublaslt", Status.UNKNOWN, expected, shown, why, "measure again")
    if majors[0] != majors[1]:
        why = f"{path} is version {own}, and the installed toolkit is CUDA {version} (in {' or '.join(folders)})"
        return Finding("cuda", "cublaslt", Status.FAIL, expected, shown, why, remedy)
    return Finding("cuda", "cublaslt", Status.PASS, expected, shown)


def _inside(path: str, folder: str) -> bool:
    whole = posixpath.normpath(path)
    return whole.startswith(posixpath.normpath(folder).rstrip("/") + "/")
