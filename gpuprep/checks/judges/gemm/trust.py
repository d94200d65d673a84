"""Can the figures of a GPU be trusted: correct results, no other process, clock not limited, the right library?

Figures that contradict each other, the chip or the catalogue do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuprep.agent.probes.gemmtypes import TYPES
from gpuprep.catalogue import is_version, parse
from gpuprep.checks import conditions
from gpuprep.checks.common import REMEDIES, RESTART, SET_CLOCKS, inside, known
from gpuprep.checks.conditions import MEMORY_CLOCK_HIGHEST, POWER_PEAK, most_watts, no_temperature
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import apart
from gpuprep.checks.judges.gemm.decoded import Gpu, masks, shape_of
from gpuprep.performance import attribution, roofline
from gpuprep.performance.attribution import Attribution
from gpuprep.performance.clock_events import IDLE
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES, Roof, speed_unit
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence import is_no_number
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
        return f"{what} has an error of {error:.2g}, which is impossible"
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
    parts = [part for gemm in gpu.gemms for part in (gemm, gemm.sustained)]
    telemetry = [part.telemetry for part in parts if part and not isinstance(part, Missing)]
    sampled = [mask for each in telemetry for mask in conditions.masks_of(each)]
    return [conditions.slowdowns(gpu.subject, "slowdowns", read, sampled=sampled)]


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


def library(values: Gemm) -> Finding:
    """Whether the cuBLASLt that ran is the installed toolkit's: a bundled copy says nothing about the installation."""
    folders, version = values.toolkit.library_dirs, values.toolkit.version
    named_so = [lib for lib in values.libraries if lib.name.lower().removeprefix("lib") == "cublaslt"]
    # If several were loaded, report one that is not the toolkit's.
    strangers = [lib for lib in named_so if not any(inside(lib.path, folder) for folder in folders)]
    loaded = next(iter([*strangers, *named_so]), None)
    expected = f"CUDA {version}'s, in {' or '.join(folders)}" if folders else "the installed toolkit's"
    remedy = (
        "remove the folder from LD_LIBRARY_PATH or of the agent's environment; `gpuprep provision "
        "HOST --profile PROFILE` sets the loader's path"
    )
    path = loaded.path if loaded else ""
    if not path or not folders:
        what = "where the toolkit's libraries are" if path else "which cuBLASLt was loaded"
        return Finding("cuda", "cublaslt", Status.UNKNOWN, expected, "not recorded", f"{what} is not recorded",
                       "measure again")  # fmt: skip
    own = (loaded.version if loaded else None) or ""
    shown = f"{path} ({own or 'version not known'})"
    if not any(inside(path, folder) for folder in folders):
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


# ---------------------------------------------------------------- possible figures

ABOVE_ROOF = 1.03  # clocks are read to a per cent or two
FREE_CLOCKS = 1.25  # of the rated boost, where makers leave the clock free: an RTX 5090 ran at 1.2 of it
ABOVE_MEMORY = 1.3  # of what memory delivers: some of the matrices stays in the cache
DURATION_PERCENT = 3.0  # durations are written with two digits
ABOVE_HIGHEST_CLOCK = 1.02
BOOSTS = 1.6  # no board runs at so many times its rated boost
POWER_LEAST = 0.02  # of the limit: a GPU at rest draws more, so these are other units than watts
LARGEST_TILE = 1024  # elements; cuBLAS's own reach 512
SHORTEST_LONG_RUN_SECONDS = 0.1
IDLE_CLOCK = 0.5  # of the boost: a loaded GPU that runs slower says why


def impossible(gpu: Gpu, gemm: Product) -> str:
    """Why these figures of a product are impossible; "" if they are possible."""
    lasting = attribution.sustained(gemm)
    room, reasons = _room(gpu, gemm), (_figures(gpu, gemm), _duration(gemm), _speed(gpu, gemm), _idle(gpu, gemm))
    why = next(filter(None, (room, *reasons, _tiles(gemm))), "")
    if not why and lasting is not None:
        why = next(filter(None, (_figures(gpu, lasting), _speed(gpu, lasting), _length(gemm))), "")
    return f"{gemm.dtype} {shape_of(gemm)}: {why}" if why else ""


def _room(gpu: Gpu, gemm: Product) -> str:
    """Why the three matrices do not fit into the board's memory; "" if they do."""
    dtype, room = gemm.dtype, gpu.facts.memory_mib if gpu.facts else None
    if gemm.m is None or gemm.n is None or gemm.k is None or dtype not in INPUT_BYTES or not room:
        return ""
    taken = INPUT_BYTES[dtype] * (gemm.m + gemm.n) * gemm.k + OUTPUT_BYTES[dtype] * gemm.m * gemm.n
    if taken <= room * 2**20:
        return ""
    needed, there = apart(taken / 2**30, room / 2**10, 0)
    return f"its matrices take {needed} GiB, and the board has {there}"


def _figures(gpu: Gpu, gemm: Product) -> str:
    """Why clock, temperature or watts are impossible for the board; "" if they are possible."""
    board, clock, highest = gpu.facts, known(gemm.graphics_clock_mhz), known(gpu.measured.max_graphics_clock_mhz)
    if clock is not None and clock <= 0:
        return f"a clock of {clock:g} MHz under load"
    if clock is not None and highest is not None and highest > 0 and clock > ABOVE_HIGHEST_CLOCK * highest:
        return f"a clock of {clock:.0f} MHz is above the GPU's highest, {highest:.0f} MHz"
    if clock is not None and board and board.boost_mhz and clock > BOOSTS * board.boost_mhz:
        return f"a clock of {clock:.0f} MHz is more than this board can have ({board.boost_mhz} MHz boost)"
    memory = known(gemm.memory_clock_mhz)
    if memory is not None and memory <= 0:
        return f"a memory clock of {memory:g} MHz under load"
    if memory is not None and board and board.memory_mhz and memory > MEMORY_CLOCK_HIGHEST * board.memory_mhz:
        return f"a memory clock of {memory:.0f} MHz is more than this board can have ({board.memory_mhz} MHz)"
    degrees = known(gemm.temperature_c)
    if degrees is not None and no_temperature(degrees, board):
        return f"a temperature of {degrees:g} °C"
    watts, limit = known(gemm.power_watts), known(gpu.measured.power_limit_watts)
    if watts is not None and watts <= 0:
        return f"a power of {watts:g} W under load"
    own = board.power_watts if board else None
    if limit is not None and limit > most_watts(board):
        shown, most = apart(limit, most_watts(board), 0)
        return f"a power limit of {shown} W, and the board has at most {most} W"
    if watts is not None and own and watts < POWER_LEAST * own:
        return f"{watts:.2g} W under load: a board of {own:g} W draws more at rest"
    if watts is not None and limit is not None and 0 < POWER_PEAK * limit < watts:
        return f"{watts:.0f} W is far above the power limit of {limit:.0f} W"
    return ""


def _duration(gemm: Product) -> str:
    """Why duration and speed do not fit 2 m n k operations; "" if they do."""
    taken, speed = known(gemm.microseconds), known(gemm.tflops)
    if taken is None or speed is None or gemm.m is None or gemm.n is None or gemm.k is None:
        return ""
    if taken <= 0:
        return f"it took {taken:g} µs"
    by_time = 2e-6 * gemm.m * gemm.n * gemm.k / taken
    if abs(by_time - speed) <= max(DURATION_PERCENT / 100 * speed, 0.001):
        return ""
    implied, recorded = apart(by_time, speed)
    return f"{taken:g} µs are {implied} {speed_unit(gemm.dtype)}, and {recorded} are recorded"


def _speed(gpu: Gpu, gemm: Product) -> str:
    """Why the speed is above the roof at the recorded clock, or above the memory's speed; "" if it is not."""
    speed, clock = known(gemm.tflops), known(gemm.graphics_clock_mhz)
    if speed is None or gpu.facts is None:
        return ""
    above = roofline.roof(gpu.facts, gemm.dtype, gemm.accumulate)
    if not isinstance(above, Roof):
        return ""
    # A clock a little above the rated boost is normal; without a clock the boost is what is known.
    unread = FREE_CLOCKS if gpu.facts.model.free_clocks else 1.0
    roof = above.tflops * (clock / above.clock_mhz if clock is not None and clock > 0 else unread)
    if speed > ABOVE_ROOF * roof:
        at = f"at {clock:.0f} MHz" if clock is not None else f"({above.formula})"
        shown, peak = apart(speed, roof)
        why = f"{shown} {speed_unit(gemm.dtype)} is more than the peak {at}, {peak}"
        return why if clock is not None else f"{why}; the clock may have been above the boost, it is not recorded"
    explained = attribution.explain(gemm, gpu.facts, gpu.measured)
    if gpu.published or not isinstance(explained, Attribution) or clock is None:
        return ""
    if explained.memory_bound and explained.factor("kernel").value > ABOVE_MEMORY:
        return f"{speed:.3g} {speed_unit(gemm.dtype)} is more than this board's memory can feed"
    return ""


def _idle(gpu: Gpu, gemm: Product) -> str:
    """Why the readings are those of an idle GPU at a low clock; "" if they are not."""
    mask, clock = known(gemm.event_reasons), known(gemm.graphics_clock_mhz)
    if mask is None or int(mask) != IDLE or clock is None or gpu.facts is None or not gpu.facts.boost_mhz:
        return ""
    if clock >= IDLE_CLOCK * gpu.facts.boost_mhz:
        return ""
    return f"NVML reported an idle GPU at {clock:.0f} MHz while a product was running"


def _length(gemm: Product) -> str:
    """Why the sustained load is too short (heat and power need more than a second to act); "" if it is not."""
    lasting = gemm.sustained
    seconds = None if lasting is None or isinstance(lasting, Missing) else known(lasting.seconds)
    if seconds is None or seconds >= SHORTEST_LONG_RUN_SECONDS:
        return ""
    return f"a long run of {seconds:g} seconds: heat and power limits act only later"


def _tiles(gemm: Product) -> str:
    """Why no kernel can have these tiles, which would excuse a slow GPU; "" if they are possible."""
    algorithm = gemm.algorithm
    if isinstance(algorithm, Missing):
        return ""
    rows, columns = algorithm.tile_m or 0, algorithm.tile_n or 0
    if max(rows, columns) <= LARGEST_TILE:
        return ""
    return f"tiles of {rows or '?'}x{columns or '?'} are larger than any kernel's"
