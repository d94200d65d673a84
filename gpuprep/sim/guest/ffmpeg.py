"""Stands in for ffmpeg where a command uses the GPU of a simulated VM (see native/exec.c for when it is called).

Refuses what this GPU cannot do, with ffmpeg's own lines. Otherwise an ffmpeg with software encoders does the work, NVML
shows the work, and this program prints what ffmpeg's GPU parts would print. Work without an output file (`-f null`, to
measure the engines) gets its speed from the model, so that many sessions cost this computer nothing.

    ffmpeg REAL [ARGUMENTS...]         REAL is the ffmpeg that was called
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpuprep.agent.gpu import simstate
from gpuprep.sim.guest import commandline, graph, machine, mapping, messages, paced, refusals, software
from gpuprep.sim.guest.commandline import Command
from gpuprep.sim.guest.machine import Machine
from gpuprep.sim.guest.mapping import Plan
from gpuprep.sim.guest.refusals import Refusal

VERBOSE = 40


def main(arguments: Sequence[str], folder: Path = simstate.FOLDER) -> int:
    """ffmpeg's exit code. `folder` holds the state of the GPUs."""
    real, words = Path(arguments[0]), list(arguments[1:])
    command = commandline.parse(words)
    this_machine = machine.look(command, real, folder)
    if lacking := _not_built(command, this_machine):
        messages.say("", lacking)
        return 8
    media = [machine.media(file, real) for file in command.inputs]
    try:
        plan = mapping.plan(command, media)
    except graph.CannotConvert as error:
        messages.say("Parsed_null_0", str(error))
        messages.say("", "Error reinitializing filters!")
        return 218
    speaks = messages.level(command) >= VERBOSE
    refusal = _refused(this_machine, plan, speaks)
    if refusal is None and this_machine.gpu is not None:
        if speaks:
            messages.announce(plan)
        for line in plan.warnings:
            messages.say("in#0", line)
        if paced.is_for(command):
            return paced.run(command, plan, media, this_machine.gpu)
        return _work(plan, this_machine, speaks)
    assert refusal is not None  # without a GPU there is always one
    return _end(refusal)


def _end(refusal: Refusal) -> int:
    for place, text in refusal.lines:
        messages.say(place, text)
    return refusal.exit_code


def _refused(host: Machine, plan: Plan, speaks: bool) -> Refusal | None:
    if host.missing_library:
        coder = plan.encodes[0].encoder if plan.encodes else plan.decodes[0].media.codec if plan.decodes else ""
        if not host.missing_library.startswith("libnvidia-encode") or plan.encodes:
            return refusals.of_library(host.missing_library, bool(plan.encodes), coder)
    if host.gpu is None:
        return refusals.no_context("cu->cuInit(0) failed -> CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
    if host.cuda_error:
        return refusals.no_context(host.cuda_error)
    for decode in plan.decodes:
        if refusal := refusals.of_decode(decode, host.gpu.video):
            return refusal
    for encode in plan.encodes:
        if refusal := refusals.of_driver(encode, host.headers, host.nvenc_api):
            return refusal
        if speaks:
            messages.say(encode.encoder, f"Loaded Nvenc version {host.nvenc_api}")
        if refusal := refusals.of_encode(encode, host.gpu.video):
            return refusal
    return None


def _not_built(command: Command, host: Machine) -> str:
    """ffmpeg's error for a part that its build lacks; "" if the build has everything, or does not list its parts."""
    parts = host.parts
    for file in command.outputs:
        name = file.video_codec() or ""
        if name in mapping.ENCODERS and name not in parts.get("encoders", [name]):
            return f"Unknown encoder '{name}'"
    for file in command.inputs:
        name = mapping.cuvid(file)
        if name and name not in parts.get("decoders", [name]):
            return f"Unknown decoder '{name}'"
    known = parts.get("filters", [])
    texts = [value or "" for name, value in command.general if name in ("filter_complex", "lavfi")]
    texts += [
        value or ""
        for file in command.outputs
        for name, value in file.options
        if name.split(":")[0] in ("vf", "filter")
    ]
    for name in (name for text in texts for name in graph.names(text)):
        if known and name.endswith(("_cuda", "_npp")) and name not in known:
            return f"No such filter: '{name}'"
    return ""


def _work(plan: Plan, host: Machine, speaks: bool) -> int:
    program = machine.software()
    if program is None:
        messages.say(
            "", "no ffmpeg with software encoders in this simulated VM: pip install imageio-ffmpeg in its agent"
        )
        return 1
    gpu = host.gpu
    assert gpu is not None
    with software.sessions(plan, gpu) as refused:
        if refused is not None:
            return _end(refused)
        if speaks:
            for encode in plan.encodes:
                messages.say(encode.encoder, "Nvenc initialized successfully")
        return software.run([str(program), *plan.words], plan, gpu)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
