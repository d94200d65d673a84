"""Judges measurements, one check per probe: does nvcc compile, does FFmpeg have its parts, ..."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from gpuprep.checks import bandwidth, forms, gemm, impossible, nccl, throughput, transcode
from gpuprep.checks.baseline import findings as compared_with_baseline
from gpuprep.checks.common import check, unknown
from gpuprep.checks.evidence import Evidence, Values
from gpuprep.checks.installed import cudnn, toolkitprobe
from gpuprep.desired.profile import Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, ProbeResult, Snapshot
from gpuprep.records.baseline import Baseline
from gpuprep.records.evidence.codec import Codec

# Kinds that ffmpeg does not list, or lists under other names, are looked up among configure's arguments.
CONFIGURED = {
    "muxers": "muxer", "demuxers": "demuxer", "parsers": "parser",
    "bsfs": "bsf", "protocols": "protocol", "indevs": "indev",
}  # fmt: skip
LISTED_AS = {"movtext": "mov_text"}  # configure's name ► FFmpeg's
HWACCEL = re.compile(r"_(nvdec|cuvid)$")


def findings(
    wanted: Wanted,
    snapshot: Snapshot,
    probed: Sequence[ProbeResult],
    asked: Collection[str],
    thresholds: Mapping[str, Threshold],
    baseline: Baseline | None = None,
) -> list[Finding]:
    """Findings of all probes that ran; UNKNOWN for a probe that ran and gave no values."""
    absent = Missing("command_failed", "the probe gave no result")
    results: dict[str, Values] = dict.fromkeys(asked, absent)
    results.update({result.probe: result.values for result in probed})
    evidence = Evidence(wanted, snapshot, results, thresholds, baseline or {})
    findings = [finding for probe, judge in JUDGES.items() if probe in results for finding in judge(evidence)]
    return findings + impossible.findings(results) + forms.findings(results) + compared_with_baseline(evidence)


def _codec(evidence: Evidence) -> list[Finding]:
    wanted, values = evidence.wanted, evidence.of(Codec, "codec")
    if wanted.codec.ffmpeg == "none":
        return []
    return [_kind(kind, names, values) for kind, names in wanted.codec.parts.items() if names]


def _kind(kind: str, names: Sequence[str], values: Codec | Missing) -> Finding:
    expected = f"{len(names)} {kind}"
    if isinstance(values, Missing):
        return unknown("ffmpeg", kind, values, expected=expected, role="gpu_codec")
    own = {"encoders": values.encoders, "decoders": values.decoders, "filters": values.filters,
           "hwaccels": values.hwaccels}  # fmt: skip
    source = kind if kind in own else "buildconf"
    listed = own.get(kind, values.buildconf)
    if isinstance(listed, Missing) or (kind not in own and kind not in CONFIGURED):
        reading = Missing("not_recorded", f"no {source} is listed")
        return unknown("ffmpeg", kind, reading, expected=expected, role="gpu_codec")
    have = set(listed) if kind in own else configured(listed, CONFIGURED[kind])
    absent = [name for name in names if _listed_name(kind, name) not in have]
    return check(
        "ffmpeg",
        kind,
        len(absent),
        not absent,
        expected=expected,
        shown=f"lacks {', '.join(absent)}" if absent else expected,
        why=f"FFmpeg lacks the {kind} {', '.join(absent)}",
        role="gpu_codec",
    )


def _listed_name(kind: str, name: str) -> str:
    """The name in FFmpeg's lists for a name of configure: `ffmpeg -hwaccels` lists h264_nvdec and its like as cuda."""
    return "cuda" if kind == "hwaccels" and HWACCEL.search(name) else LISTED_AS.get(name, name)


def configured(arguments: Sequence[str], singular: str) -> set[str]:
    """Names in all arguments of the form `--enable-muxer=mp4,mov`."""
    names: set[str] = set()
    for argument in arguments:
        key, _, value = argument.strip().partition("=")
        if key == f"--enable-{singular}":
            names.update(name.strip("'\"") for name in value.strip("'\"").split(","))
    return names


# In the order in which a report shows them.
JUDGES: dict[str, Callable[[Evidence], list[Finding]]] = {
    "toolkit": toolkitprobe.findings,
    "cudnn": cudnn.findings,
    "codec": _codec,
    "gemm": gemm.findings,
    "bandwidth": bandwidth.findings,
    "nccl": nccl.findings,
    "transcode": transcode.findings,
    "throughput": throughput.findings,
}
