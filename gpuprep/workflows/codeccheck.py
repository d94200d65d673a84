"""`gpuprep codec check`: an ffmpeg command against the parts that a host's FFmpeg, a record or a profile has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuprep import catalogue
from gpuprep.catalogue import Board
from gpuprep.checks import ffmpegneeds, ffmpegtries
from gpuprep.checks.ffmpegcommand import needs
from gpuprep.checks.ffmpegneeds import Checked, licence_of
from gpuprep.desired import loading
from gpuprep.desired.host_rules import board_at, nvidia_gpus
from gpuprep.desired.loading.schema import allowed_parts
from gpuprep.desired.state import check_profile
from gpuprep.errors import HostError, PlanRefused, SimError, UsageError
from gpuprep.records import FactsRequest, Missing, ProbeResult, RunRecord, Snapshot, Source
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.codec import Codec
from gpuprep.remote import Host, agent_client
from gpuprep.untrusted.plaintext import command
from gpuprep.workflows import storeofruns, targets

PROFILES = ("base", "video")  # searched for a profile that adds a missing part
LOOK_BACK = 200  # runs of a host
CONNECT_SECONDS, ASK_SECONDS = 10.0, 120.0


def check(
    words: Sequence[str], *, host: str | None, run: str | None, profile: str | None, store: str | None
) -> Checked:
    """What the build has of all that the ffmpeg command `words` needs. Raises UsageError, StoreError, ProfileError."""
    if host is not None and (run is not None or profile is not None):
        raise UsageError(
            f"what is {host[:40]!r}? A HOST is not allowed together with {'--record' if run else '--profile'}; if it is"
            " part of the command: the command must begin with ffmpeg, without sudo, and without quotes around it",
            "gpuprep codec check --profile NAME -- ffmpeg -i in.mp4 -c:v h264_nvenc out.mp4",
        )
    if sum(argument is not None for argument in (host, run, profile)) != 1:
        raise UsageError(
            "`gpuprep codec check` needs exactly one of HOST, --record RUN and --profile NAME",
            "gpuprep codec check HOST -- ffmpeg -i in.mp4 -c:v h264_nvenc out.mp4",
        )
    asked = needs(words)  # what is no command is refused before anything is read
    shipped = {name: loading.load(name).codec.parts for name in PROFILES}
    allowed = {kind: allowed_parts(kind) for kind in shipped[PROFILES[0]]}
    if profile is not None:
        wish = loading.load(profile)
        if reasons := check_profile(wish):
            raise PlanRefused(reasons, f"change profile {wish.name} ({wish.path})", where=wish.name)
        models = [board for board in catalogue.boards().values() if board.model.key in wish.gpus]
        boards: list[Board | None] = list(models) if len(wish.gpus) == 1 else []
        parts = ffmpegneeds.of_profile(wish.codec.parts, npp=wish.codec.npp, version=wish.codec.ffmpeg)
        asked = needs(words, parts.version)
        answers = ffmpegneeds.answers(asked, parts, boards, shipped, allowed)
        return Checked(f"profile {wish.name}", wish.codec.ffmpeg, "", False, asked, tuple(answers))
    tries = ffmpegtries.of(asked, allowed["filters"])
    answered, facts = ("", None) if host is None else _ask(host, tries)
    values: Any = answered.values if isinstance(answered, ProbeResult) else None
    record = _record(host, run, store, answered if isinstance(answered, str) else "") if facts is None else None
    listed = measured(Codec, values) if values is not None else _parts(record) if record else Missing("not_recorded")
    known = listed if isinstance(listed, Codec) else Codec()
    asked = needs(words, known.version)
    if isinstance(answered, str) and answered:
        asked.note(f"{host} was not asked; this is from its last record: {answered}")
    if record is not None:
        facts = record.after or record.before
    on = [] if facts is None else [board_at(facts, device) for device in nvidia_gpus(facts)]
    tried = None
    if values is not None:
        ends = _ends(values)
        tried = [(one, [next(ends, (1, "")) for _ in one.ways]) for one in tries]
    answers = ffmpegneeds.answers(asked, listed, on, shipped, allowed, len(on) or None, tried)
    about = f"{record.host}, run {record.run_id}" if record and values is None else f"{host}, as it is now"
    source = answered.source if isinstance(answered, ProbeResult) else record.source if record else Source.MEASURED
    return Checked(about, known.version, licence_of(known), source is Source.SIMULATED, asked, tuple(answers))


def _ask(host: str, tries: Sequence[ffmpegtries.Try]) -> tuple[ProbeResult | str, Snapshot | None]:
    """(what the codec probe of the host answers now, as its user and without a change; or why not, its facts)"""
    try:
        (target,) = targets.parse([host])
        with Host(target, connect_timeout=CONNECT_SECONDS) as reached:
            asked = {"tries": [list(words) for one in tries for words in one.ways]}
            result = agent_client.probe(reached, "codec", asked, timeout=ASK_SECONDS)
            if isinstance(result.values, Missing):
                return f"{result.values.reason}: {result.values.detail}", None
            return result, agent_client.snapshot(reached, FactsRequest())
    except (HostError, UsageError, SimError) as error:
        return error.what, None


def _ends(values: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The exit codes and words that the host sent, up to the first that is none."""
    sent = values.get("tried")
    for end in sent if isinstance(sent, list) else ():
        if not (isinstance(end, list) and len(end) == 2 and type(end[0]) is int and isinstance(end[1], str)):
            return
        yield end[0], end[1]


def _record(host: str | None, run: str | None, url: str | None, silent: str) -> RunRecord | None:
    """The run; or the host's newest, one that asked FFmpeg if the host is `silent` now (why). Raises UsageError."""
    with storeofruns.existing(url) as opened:
        if run is not None:
            return opened.get(run)
        summaries = opened.runs(host, LOOK_BACK)
        for summary in summaries:
            record = opened.get(summary.run_id)
            if not silent or isinstance(_parts(record), Codec):
                return record
    if not silent:
        return None
    what = " that asked FFmpeg for its parts" if summaries else ""
    raise UsageError(
        f"{host} was not asked ({silent}), and the store has no run of it{what}",
        command("gpuprep", "validate", "--only", "codec", "--profile", "base", about=host or ""),
    )


def _parts(record: RunRecord) -> Codec | Missing:
    values = next(
        (measurement.values for measurement in reversed(record.measurements) if measurement.probe == "codec"), None
    )
    if values is None:
        return Missing("not_recorded", "this run did not ask FFmpeg for its parts (validate --only codec does)")
    return measured(Codec, values)
