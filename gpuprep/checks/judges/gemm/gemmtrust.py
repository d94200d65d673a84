"""Can the figures of a GPU be trusted: correct results, no other process, clock not limited, the right library?"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable

from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import is_version, parse
from gpuprep.checks import conditions
from gpuprep.checks.common import REMEDIES, RESTART, SET_CLOCKS
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.judges.gemm.gemmrecord import Gpu, masks, shape_of
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.decode import is_no_number
from gpuprep.records.evidence.gemm import Gemm, Product

MEMORY_CLOCK = 0.8  # of the highest: GeForce boards compute a step below it
LOWERED = 0.97  # of the own power limit: less was set on purpose


def results(gpu: Gpu) -> list[Finding]:
    """FAIL for wrong results; UNKNOWN for results that were not compared."""
    ran = [gemm for gemm in gpu.gemms if not gemm.error]
    wrong = [contradiction for contradiction in map(_wrong, ran) if contradiction]
    expected = "exact, or within the tolerance of the data type"
    if wrong:
        return [Finding(gpu.subject, "gemm_results", Status.FAIL, expected, f"{len(wrong)} of {len(ran)} wrong",
                        f"wrong results: {'; '.join(wrong[:3])}",
                        f"do not calculate on this GPU; {RESTART}, and show the provider this report")]  # fmt: skip
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
    error, tolerance = gemm.max_relative_error, _tolerance(gemm, max)
    if is_no_number(error):
        return f"{what} has results that are no numbers, or beyond every bound"
    if isinstance(error, Missing):
        return ""
    if error < 0:
        return f"{what} has an error of {error:.2g}, which cannot be"
    if tolerance is not None and error > tolerance:
        return f"{what} is off by {error:.2g}, and {tolerance:.2g} is allowed"
    return ""


def _tolerance(gemm: Product, choose: Callable[[Iterable[float]], float]) -> float | None:
    """gpuprep's own tolerance, or the record's if that is smaller; None for a data type that gpuprep does not have.

    `choose`: the tolerance for a product that does not say how it was added up: `max` to call it wrong, `min` right.
    """
    kinds = [kind for kind in TYPES if kind.dtype == gemm.dtype]
    if gemm.accumulate:
        kinds = [kind for kind in kinds if (kind.accumulate == "fp16") == (gemm.accumulate == "fp16")]
    read = [] if isinstance(gemm.error_tolerance, Missing) else [gemm.error_tolerance]
    return min([choose([kind.tolerance for kind in kinds]), *read]) if kinds else None


def _right(gemm: Product) -> bool:
    error, tolerance = gemm.max_relative_error, _tolerance(gemm, min)
    within = not isinstance(error, Missing) and tolerance is not None and 0 <= error <= tolerance
    return gemm.exact is True or within


def errors(gpu: Gpu) -> list[Finding]:
    """A finding for products that failed; [] if none failed."""
    failed = [gemm for gemm in gpu.gemms if gemm.error]
    whole = gpu.measured.error
    if not failed and not whole and not gpu.unreadable:
        return []
    reasons = [whole] if whole else []
    reasons += [f"{gpu.unreadable} entries are no products"] if gpu.unreadable else []
    reasons += [f"{gemm.dtype} {shape_of(gemm)}: {gemm.error}" for gemm in failed[:3]]
    lost = "lost" in whole or any("lost" in gemm.error for gemm in failed)
    status = Status.FAIL if lost else Status.UNKNOWN
    count = len(failed) + gpu.unreadable
    shown = f"{count} of {len(gpu.gemms) + gpu.unreadable} failed" if count else "failed"
    remedy = REMEDIES["gpu_is_lost"] if lost else "repair what the message names, then measure again"
    return [Finding(gpu.subject, "gemm_errors", status, "every product runs", shown, "; ".join(reasons), remedy)]


def alone(gpu: Gpu) -> tuple[str, list[Finding]]:
    """(why the figures do not count, findings). Another process on the GPU makes figures too low."""
    why, finding = conditions.alone(gpu.subject, "alone", gpu.measured.other_processes)
    return why, [finding]


def slowdowns(gpu: Gpu) -> list[Finding]:
    """FAIL for hardware slowdowns, WARN for heat; the power cap is normal under load."""
    read = [mask for gemm in gpu.gemms if not gemm.error for mask in masks(gemm)]
    hits, samples = _samples(gpu, conditions.GRAVE)
    finding = conditions.slowdowns(
        gpu.subject, "slowdowns", read, sampled=_sampled(gpu), grave_samples=hits, samples=samples
    )
    return [finding]


def temperature(gpu: Gpu) -> list[Finding]:
    """Findings on the temperatures of every product and of the sustained load."""
    parts = [part for gemm in gpu.gemms if not gemm.error for part in (gemm, gemm.sustained)]
    there = [part for part in parts if part and not isinstance(part, Missing)]
    read = [(part.temperature_c, conditions.mask(part.event_reasons)) for part in there]
    return conditions.heat(gpu.subject, "gemm_temperature", gpu.facts, read)


def memory_clock(gpu: Gpu) -> list[Finding]:
    """WARN if the memory clock was low while a product ran; the bandwidth probe checks it more precisely."""
    top = gpu.facts.memory_mhz if gpu.facts else None
    read = [gemm.memory_clock_mhz for gemm in gpu.gemms if not gemm.error]
    lowest = min((clock for clock in read if not isinstance(clock, Missing) and clock > 0), default=None)
    if not top or lowest is None or lowest >= MEMORY_CLOCK * top:
        return []
    why = f"the memory clock was {lowest:.0f} of {top} MHz while a product ran"
    return [Finding(gpu.subject, "gemm_memory_clock", Status.WARN, f"{top} MHz under load", f"{lowest:.0f} MHz", why,
                    SET_CLOCKS)]  # fmt: skip


def power_limit(evidence: Evidence, gpu: Gpu) -> list[Finding]:
    """WARN for figures from elsewhere that were measured below the board's own power limit.

    For a host with facts, `power_limit` of its settings reports that.
    """
    limit, own = gpu.measured.power_limit_watts, gpu.facts.power_watts if gpu.facts else None
    asked = evidence.wanted.tuning.power_limit_watts != "default"
    if asked or evidence.facts(gpu.measured) or isinstance(limit, Missing) or not own or limit >= LOWERED * own:
        return []
    expected, why = f"{own:g} W", f"the power limit was {limit:g} W while it was measured, and the board has {own:g} W"
    return [Finding(gpu.subject, "gemm_power_limit", Status.WARN, expected, f"{limit:g} W", why,
                    "set the board's own limit (tuning.power_limit_watts: default) and measure again")]  # fmt: skip


def _sampled(gpu: Gpu) -> list[int | None]:
    """The event reasons of every sample of telemetry; None for an invalid mask."""
    parts = [part for gemm in gpu.gemms for part in (gemm, gemm.sustained)]
    read = [part.telemetry for part in parts if part and not isinstance(part, Missing) and part.telemetry]
    return [
        conditions.mask(reasons) for telemetry in read for reasons in telemetry.event_reasons if reasons is not None
    ]


def _samples(gpu: Gpu, bits: int) -> tuple[int, int]:
    """(samples with one of these bits, samples in all) of every telemetry."""
    hits = samples = 0
    for gemm in gpu.gemms:
        for part in (gemm, gemm.sustained):
            telemetry = None if part is None or isinstance(part, Missing) else part.telemetry
            read = [reasons for reasons in telemetry.event_reasons if reasons is not None] if telemetry else []
            samples += len(read)
            hits += sum(1 for reasons in read if (conditions.mask(reasons) or 0) & bits)
    return hits, samples


def library(values: Gemm) -> Finding:
    """Whether the cuBLASLt that ran is the installed toolkit's: a bundled copy says nothing about the installation."""
    folders, version = values.toolkit.library_dirs, values.toolkit.version
    named_so = [lib for lib in values.libraries if lib.name.lower().removeprefix("lib") == "cublaslt"]
    # Where several were loaded, one that is not the toolkit's is what to tell.
    strangers = [lib for lib in named_so if not any(_inside(lib.path, folder) for folder in folders)]
    loaded = next(iter([*strangers, *named_so]), None)
    expected = f"CUDA {version}'s, in {' or '.join(folders)}" if folders else "the installed toolkit's"
    remedy = (
        "take the folder out of LD_LIBRARY_PATH or of the agent's environment; `gpuprep provision "
        "HOST --profile PROFILE` sets the loader's"
    )
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
