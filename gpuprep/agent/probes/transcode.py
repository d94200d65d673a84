"""Does the GPU transcode? Runs every command of NVIDIA's FFmpeg guide and checks the output.

Cases that encode run one after the other, so that NVML's encoder figures belong to one case. At the same time, cases
that only decode run, several at once: most of their time is opening the GPU and compiling a scaler, and speed is not
measured here. `at_once` of a case is the number of cases at that time. Other cores check outputs meanwhile. If a case
fails, hangs or has no disk space, that is its result, and the others continue. No file stays.
If the driver refuses to open an encoder at all, further cases of that encoder are not run: it would refuse them, too.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

from gpuprep.agent.gpu.nvml import Gpu, Nvml
from gpuprep.agent.probereports import measured, measured_each, tell
from gpuprep.agent.probes import codec
from gpuprep.agent.probes.gpuforms import named
from gpuprep.agent.probes.transcodecases import BY_ID, CASES, Case
from gpuprep.agent.probes.transcodechunks import chunks
from gpuprep.agent.probes.transcodeproof import expected, prove
from gpuprep.agent.probes.transcoderun import Ran, command, lay_out, missing_parts, run_case
from gpuprep.agent.programs import children
from gpuprep.agent.video.clips import Clip, clip, make_beforehand, prepare
from gpuprep.agent.video.ffmpegerrors import cause
from gpuprep.records import Missing, to_json_value

GPU_INDEX = 0  # FFmpeg's default device, and the one that case 12 names
PROVERS = 8
ROOM_MIB = 1024  # for raw pictures: three cases of the largest at once
DECODES = 3  # cases at once that only decode
CORES = 8  # below this all cases run one after the other
Ended = Tuple[Dict[str, Any], "Optional[Future[List[Any]]]"]  # a case's row, and the proof of its outputs


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: quick (a handful of cases), cases (ids; default: all), path (ffmpeg), clips (folder of the inputs),
    clips_only (make these and do nothing else).

    Values: docs/records.md, "transcode".
    """
    parts = codec.measure({"path": arguments["path"]} if "path" in arguments else {})
    if isinstance(parts, Missing):
        return parts
    ffmpeg = str(parts["path"])
    clips = Path(arguments["clips"]) if "clips" in arguments else None
    quick = bool(arguments.get("quick"))
    wanted = chosen(quick, arguments.get("cases"))
    if arguments.get("clips_only"):
        return make_beforehand(inputs_of(case for case in wanted if not missing_parts(case, parts)), within=clips)
    try:
        with children.scratch("transcode", ROOM_MIB) as scratch:
            return _measured(ffmpeg, parts, wanted, quick, scratch, clips)
    except OSError as error:
        return Missing("command_failed", str(error))


def _measured(
    ffmpeg: str, parts: Dict[str, Any], wanted: Sequence[Case], quick: bool, scratch: Path, clips: Optional[Path]
) -> Dict[str, Any]:
    with Nvml() as nvml:
        gpus = nvml.gpus()
        gpu = gpus[GPU_INDEX] if isinstance(gpus, list) and gpus else None
        gpu_named: Any = gpus if isinstance(gpus, Missing) else Missing("not_installed", "NVML lists no GPU")
        if gpu is not None:
            facts = gpu.facts()
            gpu_named = named(facts)
        used = {
            "quick": quick,
            "ffmpeg": {"path": ffmpeg, "version": parts["version"]},
            "gpu": to_json_value(gpu_named),
        }
        measured_each(used)
        runner = Runner(ffmpeg, str(Path(ffmpeg).with_name("ffprobe")), parts, scratch, clips, gpu)
        cases = runner.run(wanted)
        tell("one process for many outputs", done=len(cases), of=len(cases), unit="transcodes")
        saved = Missing("not_run", "left out of a quick run") if quick else chunks(ffmpeg, parts, cases, scratch, clips)
    return {
        **used,
        "inputs": inputs(wanted, clips),
        "cases": to_json_value(cases),
        "chunks": to_json_value(saved),
    }


def chosen(quick: bool, ids: Optional[Sequence[str]]) -> Tuple[Case, ...]:
    if ids is not None:
        return tuple(BY_ID[name] for name in ids)
    return tuple(case for case in CASES if case.quick or not quick)


def inputs(cases: Sequence[Case], clips: Optional[Path]) -> List[Dict[str, Any]]:
    """Values of the clips that the cases read, each clip once."""
    rows: Dict[str, Dict[str, Any]] = {}
    for case in cases:
        for item in case.inputs:
            made = clip(item.clip, item.seconds, within=clips)
            row: Dict[str, Any] = {"name": item.clip}
            if isinstance(made, Clip):
                for key in ("codec", "width", "height", "frames", "fps", "audio"):
                    row[key] = getattr(made, key)
            else:
                row["missing"], row["detail"] = made.reason, made.detail
            rows[f"{item.clip} {item.seconds}"] = row
    return list(rows.values())


class Runner:
    """Runs cases one after the other, and checks their outputs in parallel."""

    def __init__(
        self, ffmpeg: str, ffprobe: str, parts: Dict[str, Any], scratch: Path, clips: Optional[Path], gpu: Optional[Gpu]
    ) -> None:
        self.ffmpeg, self.ffprobe, self.parts = ffmpeg, ffprobe, parts
        self.scratch, self.clips, self.gpu = scratch, clips, gpu
        self.refused: Dict[str, Tuple[str, str]] = {}  # encoder ► the case that it was refused in, and the line
        self._running: "Set[subprocess.Popen[bytes]]" = set()
        self._counting = threading.Lock()
        self._at_work: Set[str] = set()
        self._most: Dict[str, int] = {}  # case ► how many were at work at most while it was
        self._done = self._of = 0
        self._rows: Dict[int, Dict[str, Any]] = {}
        self._reported = 0

    def run(self, cases: Sequence[Case]) -> List[Dict[str, Any]]:
        provers = max(1, min(PROVERS, (os.cpu_count() or 1) - 1))
        able = [case for case in cases if not missing_parts(case, self.parts)]
        self._of = len(cases)
        # Raw outputs are large: only so many cases have theirs on disk.
        self._room = threading.BoundedSemaphore(provers + 1 + DECODES)
        beside = decodes_beside(cases)
        begun: Dict[int, Future[Ended]] = {}
        with ThreadPoolExecutor(provers) as pool, ThreadPoolExecutor(DECODES) as lane, ThreadPoolExecutor(1) as maker:
            try:
                tell("making the clips")
                made = maker.submit(prepare, inputs_of(able), within=self.clips)
                if not beside:
                    made.result()  # with few cores this would slow a case at the same time, whose seconds are reported
                begun = {number: lane.submit(self._case, number, cases[number], pool) for number in beside}
                ended = {n: self._case(n, case, pool) for n, case in enumerate(cases) if n not in begun}
                ended.update((number, future.result()) for number, future in begun.items())
                made.result()
                rows = []
                for number in range(len(cases)):
                    row, proof = ended[number]
                    if proof is not None:
                        tell("comparing outputs with their sources", done=number, of=len(cases), unit="transcodes")
                        row["outputs"] = proof.result()
                        measured(row, "cases", number)
                    rows.append(row)
            except BaseException:  # interrupted: cases that have not begun are cancelled
                for executor in (maker, lane, pool):
                    executor.shutdown(wait=False, cancel_futures=True)
                for process in list(self._running):
                    children.end(process)
                raise
        return rows

    def _case(self, number: int, case: Case, pool: ThreadPoolExecutor) -> "Ended":
        self._room.acquire()
        row, proof = self._begun(case, pool)
        if proof is None:
            self._room.release()
        else:
            proof.add_done_callback(lambda _: self._room.release())
        with self._counting:
            self._rows[number] = row
            while self._reported in self._rows:  # in their order: a list that is reported grows by one
                measured(self._rows[self._reported], "cases", self._reported)
                self._reported += 1
        return row, proof

    def _begun(self, case: Case, pool: ThreadPoolExecutor) -> "Ended":
        lacking = missing_parts(case, self.parts)
        if lacking:
            return _row(case, Ran("not_built"), lacking), None
        known = next((self.refused[name] for name in case.encoders if name in self.refused), None)
        if known is not None:
            row = _row(case, Ran("refused", reason=known[1], refused_in=known[0]), [])
            row["outputs"] = [{"name": output.file, "error": "the command was not run"} for output in case.outputs]
            return row, None
        folder = self.scratch / case.id
        try:
            folder.mkdir()
        except OSError as error:
            return _row(case, Ran("not_run", reason=f"{case.id}: {error}"), []), None
        input_clips = lay_out(self.ffmpeg, case, folder, self.clips)
        if isinstance(input_clips, Missing):
            shutil.rmtree(folder, ignore_errors=True)
            return _row(case, Ran("not_run", reason=input_clips.detail or input_clips.reason), []), None
        with self._counted(case):
            ran = run_case(self.ffmpeg, case, folder, self.gpu, self._running)
        row = {**_row(case, ran, []), "at_once": self._most.pop(case.id)}
        encoder = refused_encoder(case, ran)
        if encoder:
            self.refused[encoder] = (case.id, ran.decisive)
        if ran.outcome != "completed":
            shutil.rmtree(folder, ignore_errors=True)
            nothing = Missing("not_read", "the command did not complete")
            row["outputs"] = [
                {"name": output.file, "expected": expected(output, case, input_clips), "error": nothing.detail}
                for output in case.outputs
            ]
            return row, None
        return row, pool.submit(self._prove, case, folder, input_clips, ran)

    @contextlib.contextmanager
    def _counted(self, case: Case) -> Iterator[None]:
        """Count how many cases run at the same time as this one."""
        with self._counting:
            self._at_work.add(case.id)
            for name in self._at_work:
                self._most[name] = max(self._most.get(name, 0), len(self._at_work))
        tell(case.id, done=self._done, of=self._of, unit="transcodes")
        try:
            yield
        finally:
            with self._counting:
                self._at_work.discard(case.id)
                self._done += 1

    def _prove(self, case: Case, folder: Path, clips: Dict[str, Clip], ran: Ran) -> List[Any]:
        try:
            return [prove(self.ffmpeg, self.ffprobe, case, output, folder, clips, ran) for output in case.outputs]
        except OSError as error:
            return [
                {"name": output.file, "expected": expected(output, case, clips), "error": f"not proven: {error}"}
                for output in case.outputs
            ]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def refused_encoder(case: Case, ran: Ran) -> str:
    """The encoder that no case can open, according to this case's failure; "" if other cases may succeed.

    Only a refusal before the driver reads codec settings counts: no encoder on this device. A missing feature, the
    limit of sessions, memory or a library concern only this command or this moment.
    """
    explained = cause(ran.decisive)
    certain = (
        ran.outcome == "failed"
        and ran.exit_code not in (None, 0)
        and explained is not None
        and explained.denies == "nvenc"
    )
    return case.encoders[0] if certain and len(case.encoders) == 1 else ""


def decodes_beside(cases: Sequence[Case]) -> List[int]:
    """Indices of the cases that run at the same time as others: those without encoder, if there are enough cores.

    Encoders are opened one after the other, because desktop GPUs allow only a few sessions.
    """
    if (os.cpu_count() or 1) < CORES:
        return []
    return [number for number, case in enumerate(cases) if not case.encoders]


def inputs_of(cases: Iterable[Case]) -> List[Tuple[str, Optional[float]]]:
    """Name and seconds of each clip that the cases read."""
    return [(item.clip, item.seconds) for case in cases for item in case.inputs]


def _row(case: Case, ran: Ran, lacking: List[str]) -> Dict[str, Any]:
    return {
        "id": case.id,
        "number": case.number,
        "chapter": case.chapter,
        "title": case.title,
        "command": shlex.join(["ffmpeg", *command(case)]),
        "needs": {
            "encoders": list(case.encoders),
            "decoders": list(case.decoders),
            "filters": list(case.filters),
            "capabilities": list(case.capabilities),
            "lines": list(case.announcements),
        },
        "outcome": ran.outcome,
        "exit_code": ran.exit_code,
        "seconds": round(ran.seconds, 3),
        "decisive_line": ran.decisive,
        "refused_in": ran.refused_in,
        "missing_parts": lacking,
        "warnings": ran.warnings,
        "at_once": 1,
        "outputs": [],
        "gpu_proof": ran.proof(),
    }
