"""Did the transcodes of NVIDIA's guide work?

Two sources show what a GPU cannot do: the catalogue and the driver's own error. If both agree, the case is SKIP; if
they disagree, one of them is wrong, and that is a finding. The table of FFmpeg's errors explains all other failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuprep import catalogue
from gpuprep.agent.probes.transcodecases import CASES
from gpuprep.agent.probes.transcodecases import Case as Planned
from gpuprep.agent.probes.transcodechunks import FILES, SIZES
from gpuprep.agent.video.ffmpegerrors import Cause, cause
from gpuprep.catalogue.video import capabilities, is_verified
from gpuprep.checks.common import provision, skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import apart
from gpuprep.checks.judges.transcode import outputs, trust
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.transcode import Case, Transcode

COMPLETED = "completed"
CAPABILITY = "capability"
ROLE = "gpu_codec"
OUTCOMES = ("completed", "failed", "timed_out", "not_built", "not_run", "refused")
EXPECTED = "it works"
RETRY = "run the case's command by hand on the host; it is in the record"
WORDS = {
    "h264": "H.264", "hevc": "HEVC", "vp9": "VP9", "av1": "AV1", "b_frames": "with B-frames", "444": "4:4:4",
    "b_ref": "with B-frames as references", "10bit": "10 bit", "lookahead": "with look-ahead",
    "temporal_aq": "with temporal AQ",
}  # fmt: skip
# Kinds of FFmpeg's parts as the probe names them ► as a profile does.
KINDS = {"encoder": "encoders", "decoder": "decoders", "filter": "filters", "hwaccel": "hwaccels"}


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.of(Transcode, "transcode")
    if evidence.wanted.codec.ffmpeg == "none":
        return []
    if isinstance(values, Missing):
        return [
            unknown("transcode", COMPLETED, values, expected=EXPECTED, role=ROLE, what="whether the GPU transcodes")
        ]
    model = _model(evidence, values)
    known = None if model is None else capabilities(model.key)
    every: dict[str, Case] = {}
    for case in values.cases:
        every.setdefault(case.id, case)
    findings = [finding for case in every.values() for finding in _case(evidence, case, every, model, known)]
    findings += [finding for case in every.values() for finding in _other_needs(case)]
    if why := trust.inputs(values):
        expected = "the clips that gpuprep makes"
        findings.append(Finding("transcode", "inputs", Status.UNKNOWN, expected, "others", why, "measure again"))
    return [*findings, *_twice(values), *_left_out(values), *_chunks(values, known)]


def _model(evidence: Evidence, values: Transcode) -> catalogue.Model | None:
    """The model of the GPU that transcoded; if the probe does not name it, of the host's first GPU."""
    if values.gpu and values.gpu.pci_device_id:
        known = evidence.board(values.gpu)
        return known.model if known else None
    return catalogue.models().get(evidence.wanted.gpus[0].model) if evidence.wanted.gpus else None


def _case(
    evidence: Evidence,
    case: Case,
    every: Mapping[str, Case],
    model: catalogue.Model | None,
    known: frozenset[str] | None,
) -> list[Finding]:
    subject, own = f"transcode {case.id}", trust.planned(case)
    outcome = case.outcome
    if outcome not in OUTCOMES:
        reading = Missing("unparsable", f"outcome {outcome!r}") if outcome else Missing("not_recorded", "no outcome")
        return [unknown(subject, COMPLETED, reading, expected=EXPECTED, what="how the case ended")]
    why = trust.contradiction(case, every)
    if own is None or why:
        expected, shown = "a possible record", str(outcome)
        return [Finding(subject, COMPLETED, Status.UNKNOWN, expected, shown, why, "measure again")]
    lacking = [] if known is None else [name for name in own.capabilities if name not in known]
    if outcome == "completed":
        return [*_beyond(subject, model, lacking), *outputs.findings(subject, case, own)]
    if outcome == "not_built":
        return [_not_built(evidence, subject, case)]
    if outcome == "not_run":
        return [_not_run(subject, case)]
    return [_failed(subject, case, own, model, known, lacking)]


def _other_needs(case: Case) -> list[Finding]:
    own = trust.planned(case)
    if own is None or not (why := trust.other_needs(case, own)):
        return []
    subject, expected = f"transcode {case.id}", "as gpuprep's case"
    return [Finding(subject, "needs", Status.UNKNOWN, expected, "others", why, "measure again")]


def _title(model: catalogue.Model | None) -> str:
    return "this GPU" if model is None else model.title


def _beyond(subject: str, model: catalogue.Model | None, lacking: Sequence[str]) -> list[Finding]:
    """The finding for a case that ran although the GPU lacks the capability by the catalogue: UNKNOWN if sourced."""
    if not lacking:
        return []
    words, title = in_words(lacking), _title(model)
    sure = model is not None and any(is_verified(model.key, name) for name in lacking)
    return [
        Finding(
            subject, CAPABILITY, Status.UNKNOWN if sure else Status.WARN, f"no {words}", "it ran",
            f"the catalogue says that {title} has no {words}, and yet FFmpeg did it",
            "catalogue/video.yml is wrong about this GPU: please report it; or FFmpeg used another device",
        )
    ]  # fmt: skip


def _not_built(evidence: Evidence, subject: str, case: Case) -> Finding:
    parts = case.missing_parts
    words = ", ".join(parts) or "a part"
    asked = [part for part in parts if _is_asked(evidence, part)]
    if asked:
        why = f"FFmpeg was built without {', '.join(asked)}, which the profile asks for"
        return Finding(subject, COMPLETED, Status.FAIL, EXPECTED, f"lacks {words}", why, provision(ROLE), ROLE)
    reason = f"FFmpeg was built without {words}, and the profile asks for no such part"
    return skip(subject, COMPLETED, expected=EXPECTED, actual=f"lacks {words}", reason=reason, role=ROLE)


def _is_asked(evidence: Evidence, part: str) -> bool:
    kind, _, name = part.partition(" ")
    wanted = evidence.wanted.codec.parts.get(KINDS.get(kind, ""), ())
    if kind == "hwaccel":  # a profile names h264_nvdec, FFmpeg lists all of them as cuda
        return bool(wanted)
    return name in wanted or (name == "scale_npp" and evidence.wanted.codec.npp)


def _not_run(subject: str, case: Case) -> Finding:
    line = case.decisive_line
    known = cause(line)
    reading = Missing("not_run", line)
    return unknown(
        subject, COMPLETED, reading, expected=EXPECTED, what="the case's inputs could not be made: whether it works",
        remedy=known.remedy if known else "install imageio-ffmpeg for the agent, or a distribution's ffmpeg",
    )  # fmt: skip


def _failed(
    subject: str,
    case: Case,
    own: Planned,
    model: catalogue.Model | None,
    known: frozenset[str] | None,
    lacking: Sequence[str],
) -> Finding:
    title = _title(model)
    line = case.decisive_line or "no line of FFmpeg is recorded"
    explained = cause(line)
    refused = [name for name in own.capabilities if explained is not None and denies(explained, name)]
    if refused and known is None:
        reason = f'the driver: "{line}"; the catalogue does not know this GPU'
        return skip(subject, COMPLETED, expected=EXPECTED, actual="refused by the driver", reason=reason)
    if any(name in lacking for name in refused):
        reason = f'{title} has no {in_words(lacking)} (catalogue), and the driver says so: "{line}"'
        return skip(subject, COMPLETED, expected=EXPECTED, actual="not supported by this GPU", reason=reason)
    if refused:
        sure = any(is_verified(model.key, name) for name in refused) if model is not None else False
        return Finding(
            subject, CAPABILITY, Status.FAIL if sure else Status.WARN, in_words(refused), "refused by the driver",
            f'the catalogue says that {title} has {in_words(refused)}, and the driver refuses it: "{line}"',
            "see that the driver's video libraries are of the driver's version, and that no vGPU or MIG profile hides "
            "the engine; if this card has none, the catalogue is wrong: please report it",
        )  # fmt: skip
    meaning = f": {explained.meaning}" if explained else ""
    if lacking and not case.decisive_line:
        reading = Missing("not_recorded", "no line of FFmpeg")
        what = f"whether the driver says that {title} has no {in_words(lacking)}"
        return unknown(subject, COMPLETED, reading, expected=EXPECTED, what=what, remedy=RETRY)
    if lacking:
        return Finding(
            subject, COMPLETED, Status.UNKNOWN, EXPECTED, "not confirmed",
            f'{title} has no {in_words(lacking)} (catalogue), but the driver answered otherwise: "{line}"{meaning}',
            explained.remedy if explained else RETRY,
        )  # fmt: skip
    actual = "stopped: it did not end" if case.outcome == "timed_out" else f"exit code {case.exit_code}"
    why = f'"{line}"{meaning}'
    return Finding(subject, COMPLETED, Status.FAIL, EXPECTED, actual, why, explained.remedy if explained else RETRY)


def denies(explained: Cause, capability: str) -> bool:
    """Whether the driver's error is about this capability: "nvenc.*.10bit" fits nvenc.hevc.10bit."""
    if not explained.denies:
        return False
    denied, asked = explained.denies.split("."), capability.split(".")
    if len(denied) == 1:
        return denied[0] == asked[0]
    if denied[0] == "nvdec":  # the decoder says only that it cannot, not whether codec or depth is the limit
        return asked[0] == "nvdec"
    return len(denied) == len(asked) and all(
        pattern in ("*", other) for pattern, other in zip(denied, asked, strict=True)
    )


def in_words(names: Sequence[str]) -> str:
    """ "NVENC for H.264, NVDEC for HEVC 10 bit"; a capability that follows from another one is left out."""
    chief = [name for name in names if name.rpartition(".")[0] not in names]
    texts = []
    for name in chief:
        engine, codec, *feature = name.split(".")
        texts.append(" ".join([f"{engine.upper()} for {WORDS.get(codec, codec)}", *(WORDS.get(f, f) for f in feature)]))
    return ", ".join(texts)


def _twice(values: Transcode) -> list[Finding]:
    """UNKNOWN for a case with two entries, of which only the first is judged."""
    names = [case.id for case in values.cases if case.id != Case().id]
    again = sorted({name for name in names if names.count(name) > 1})
    if not again:
        return []
    why = f"the record has more than one entry of {', '.join(again)}: it is not known which is right"
    return [Finding("transcode", "entries", Status.UNKNOWN, "one entry a case", "several", why, "measure again")]


def _left_out(values: Transcode) -> list[Finding]:
    """UNKNOWN for commands of the guide that are missing in a run of all commands."""
    tried = {case.id for case in values.cases}
    # If a run is recorded as quick but has other cases, it was a full run.
    quick = values.quick is True and tried <= {case.id for case in CASES if case.quick}
    wanted = [case.id for case in CASES if case.quick or not quick]
    absent = [name for name in wanted if name not in tried]
    if not absent:
        return []
    reading = Missing("not_recorded", ", ".join(absent))
    return [unknown("transcode", "cases", reading, expected=f"{len(wanted)} cases", what=f"{len(absent)} cases")]


def _chunks(values: Transcode, known: frozenset[str] | None) -> list[Finding]:
    """The finding on chapter 6.2: one process for several files must not be slower than one process per output."""
    subject, prop, expected = "transcode chunks", "saved_seconds", "one process is faster"
    chunks = values.chunks
    if values.quick:
        return []
    if isinstance(chunks, Missing):
        explained = cause(chunks.detail)
        without = known is not None and "nvenc.h264" not in known
        if explained is not None and denies(explained, "nvenc.h264") and (without or known is None):
            reason = f'this GPU does not encode: "{chunks.detail}"'
            return [skip(subject, prop, expected=expected, actual="not supported by this GPU", reason=reason)]
        return [unknown(subject, prop, chunks, expected=expected)]
    if known is not None and "nvenc.h264" not in known:
        why = "by the catalogue this GPU does not encode, and yet there are figures of encodes"
        return [Finding(subject, prop, Status.UNKNOWN, "no encoder on this GPU", "it ran", why, "measure again")]
    single, many, saved = chunks.one_process_seconds, chunks.many_processes_seconds, chunks.saved_seconds
    if isinstance(single, Missing) or isinstance(many, Missing) or isinstance(saved, Missing):
        return [unknown(subject, prop, Missing("not_recorded", "no seconds"), expected=expected)]
    if single <= 0 or many <= 0:
        return [unknown(subject, prop, Missing("unparsable", "seconds that are not a duration"), expected=expected)]
    if (chunks.files, chunks.renditions) != (FILES, len(SIZES)):
        made = f"{FILES} in {len(SIZES)}"
        why = f"{chunks.files} files in {chunks.renditions} sizes are recorded, and the probe makes {made}"
        return [Finding(subject, prop, Status.UNKNOWN, expected, "another work", why, "measure again")]
    if abs(many - single - saved) > 0.01:
        why = f"{many:g} s less {single:g} s are {many - single:.3f} s, and {saved:g} s saved are recorded"
        return [Finding(subject, prop, Status.UNKNOWN, expected, f"{saved:g} s", why, "measure again")]
    one, each = apart(single, many, 1)
    shown = f"{one} s in one process, {each} s in {FILES * len(SIZES)}"
    if saved > 0:
        return [Finding(subject, prop, Status.PASS, expected, shown)]
    why = f"one process for all files took {one} s, and a process for each output {each} s"
    remedy = "see that nothing else uses the GPU and its CPU cores, and validate again"
    return [Finding(subject, prop, Status.WARN, expected, shown, why, remedy)]


def parts(measurement: Transcode) -> Iterator[str]:
    """The cases that ran to their end."""
    yield from dict.fromkeys(case.id for case in measurement.cases if case.outcome == COMPLETED)
