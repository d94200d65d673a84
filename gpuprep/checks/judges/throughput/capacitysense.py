"""Are the additional figures of `gpuprep capacity` possible: latency and picture quality? Pure.

Streams are not recorded: they are calculated from frames per second (capacity.py), which throughputsense checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.agent.probes import latency, quality
from gpuprep.agent.video.throughputplan import PRESETS, SOFTWARE
from gpuprep.checks import pictures
from gpuprep.checks.common import known, unknown
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.decode import Figure
from gpuprep.records.evidence.throughput import Latency, Quality, Throughput

AGAIN = "measure again: `gpuprep capacity HOST`"
# Pictures go in at the pace of a camera, and FFmpeg is ended so long after the last.
LONGEST_MS = 1000 * (latency.PICTURES / latency.FPS + latency.PATIENCE)
MOST_COUNTED = latency.PICTURES - latency.SETTLED
ROUNDED_MS = 0.01  # two digits are written
RATE_FACTOR = 3.0  # of the bits asked for; twice of it is what the encoder may give at most (-maxrate)
FAR_DB = 15.0  # a picture beside another one: no encoder makes that of its own input


def findings(values: Throughput) -> list[Finding]:
    """UNKNOWN for impossible or lost figures; FAIL if an encoder's pictures are not those of its input."""
    figure_findings = [
        _latency(measurement, why) for measurement in values.latency for why in [next(_time(measurement), "")] if why
    ]
    for measurement in values.quality:
        if why := next(_pictures(measurement), ""):
            figure_findings.append(_quality(measurement, Status.UNKNOWN, why, AGAIN))
        elif (psnr := known(measurement.psnr_db)) is not None and psnr < FAR_DB:
            why = f"a PSNR of {psnr:g} dB: what the encoder made are not the pictures that went in"
            figure_findings.append(
                _quality(measurement, Status.FAIL, why, "encode a file by hand and look at it; show the provider it")
            )
    return [*figure_findings, *_lost(values)]


def _latency(row: Latency, why: str) -> Finding:
    subject = " ".join(filter(None, ("latency", row.kind, row.codec, row.preset)))
    return Finding(subject, "ms", Status.UNKNOWN, "a possible time", _shown(row.median_ms, "ms"), why, AGAIN)


def _quality(row: Quality, status: Status, why: str, remedy: str) -> Finding:
    subject = " ".join(filter(None, ("quality", row.encoder or row.codec, row.preset)))
    return Finding(subject, "pictures", status, "possible figures", _shown(row.psnr_db, "dB"), why, remedy)


def _time(row: Latency) -> Iterator[str]:
    median, late = known(row.median_ms), known(row.p95_ms)
    for name, value in (("median", median), ("95th percentile", late)):
        if value is not None and not 0 < value <= LONGEST_MS:
            yield f"a {name} of {value:g} ms is recorded, and the probe waits {LONGEST_MS:g} ms at most"
    if median is not None and late is not None and late + ROUNDED_MS < median:
        yield f"a 95th percentile of {late:g} ms is below the median, {median:g} ms"
    if median is not None and late is None:
        yield "there is a median, and no 95th percentile of the same pictures"
    if median is not None and not latency.LEAST <= (row.frames or 0) <= MOST_COUNTED:
        yield f"{row.frames} pictures are counted, and the probe counts {latency.LEAST} to {MOST_COUNTED}"


def _pictures(row: Quality) -> Iterator[str]:
    yield from pictures.impossible(known(row.psnr_db), known(row.xpsnr_db), lossy=True)
    rate, asked = known(row.bit_rate_kbps), known(row.asked_kbps)
    if asked is not None and asked != quality.KBPS:
        yield f"{asked:g} kbit/s were asked for, and the probe asks for {quality.KBPS}"
    if rate is not None and not 0 < rate <= RATE_FACTOR * quality.KBPS:
        yield f"{rate:g} kbit/s came out, and {quality.KBPS} were asked for"
    if rate is not None and not row.frames:
        yield "how many pictures were encoded is not recorded"
    if row.encoder not in (f"{row.codec}_nvenc", SOFTWARE.get(row.codec)):
        yield f"the encoder {row.encoder or '?':.20} is not one of {row.codec or '?':.20}"
    elif row.encoder.endswith("_nvenc") and row.preset not in PRESETS:
        yield f"NVENC has no preset {row.preset or '?':.20}"


def _lost(values: Throughput) -> list[Finding]:
    """UNKNOWN if latency or quality is missing: a run of `gpuprep capacity` lists both, even if they failed."""
    if not values.capacity or values.published:
        return []
    done = {(series.kind, series.codec, series.preset) for series in values.series if series.outcome == "completed"}
    encoded = any(kind in ("encode", "software") and "-" not in codec for kind, codec, _ in done)
    wanted: list[tuple[str, Sequence[object], bool]] = [
        ("latency", values.latency, bool(latency.chosen(done))),
        ("quality", values.quality, encoded),
    ]
    nothing = Missing("not_recorded", "by its own word the run measured it")
    return [
        unknown("throughput", what, nothing, expected="recorded", what=f"the {what}", remedy=AGAIN)
        for what, listed, due in wanted
        if due and not listed
    ]


def _shown(value: Figure, unit: str) -> str:
    return "not recorded" if isinstance(value, Missing) else f"{value:g} {unit}"
