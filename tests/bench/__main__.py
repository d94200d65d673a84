"""make bench: what gpuprep costs over the plain tools below it, as ratios of two things timed in the same run.

Absolute times on a shared machine mean little, so none is a result here; the seconds are printed to be read beside
their ratio. Each pair is timed in turns, and its ratio is that of the medians. Exit code 1 when a limit is passed.
Every figure of a machine is of a simulated VM: real packages, real Ansible, no GPU. The parts `transcode`,
`history`, `dashboard` and `trace` run here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import bench_dashboard
import bench_facts
import bench_history
import bench_memory
import bench_sweep
import bench_trace
import bench_transcode
from bench_ffmpeg import build
from ratios import BIN, GPUPREP, Ratio, in_turns, run

from gpuprep import checks, sim
from gpuprep.desired import loading, state
from gpuprep.paths import cache_dir
from gpuprep.provisioning import ansible_environment, plan
from gpuprep.remote import Host, agent_client
from gpuprep.workflows import sources

MACHINE = os.environ.get("GPUPREP_BENCH_MACHINE", "bench-t4")
SECOND = f"{MACHINE}-second"
WITHOUT_MACHINE = {"start", "transcode", "history", "dashboard", "trace"}
# Written by gpu_codec on the machine that compiled, and only there.
COMPILED = "/var/lib/gpuprep/build/compiled.json"


def start_up() -> Ratio:
    ours, theirs = in_turns(lambda: run(GPUPREP, "--help"), lambda: run(str(BIN / "ansible"), "--version"), 5)
    return Ratio("gpuprep --help / ansible --version", ours, theirs, 0.5)


def plain_playbook(machine: str, scratch: Path, *options: str) -> Callable[[], object]:
    """`ansible-playbook playbooks/provision.yml` with the variables gpuprep would give it."""
    target = sim.target(machine)
    t4 = loading.load("t4")
    with Host(target) as host:
        snapshot = agent_client.snapshot(host, checks.request(t4))
    wish = state.resolve(t4, snapshot)
    roles = plan.role_variables(wish)
    known = {
        **roles,
        **sources.mirrored(roles, target.mirrors),
        "gpu_codec_artifact_dir": str(cache_dir() / "artifacts"),
        "gpuprep_profile": t4.name,
        "gpuprep_profile_sha256": t4.sha256,
    }
    inventory = scratch / "inventory.json"
    inventory.write_text(json.dumps(ansible_environment.inventory(target, known)))
    playbooks = ansible_environment.playbooks_dir()
    environment = ansible_environment.environment(target, scratch, playbooks, accept_new_host_key=False)
    command = [str(BIN / "ansible-playbook"), "-i", str(inventory), str(playbooks / "provision.yml"), *options]
    return lambda: run(*command, environment=environment)


def finished_host(machine: str, scratch: Path) -> list[Ratio]:
    theirs = plain_playbook(machine, scratch)
    again = [GPUPREP, "provision", f"sim:{machine}", "--profile", "t4", "-q"]
    recognised, plain = in_turns(lambda: run(*again), theirs, 3)
    deep, plain_too = in_turns(lambda: run(*again, "--deep"), theirs, 3)
    return [
        Ratio("second provision of a finished host / ansible-playbook", recognised, plain, 0.2),
        Ratio("the same with --deep / ansible-playbook", deep, plain_too, 1.25),
    ]


def drift(machine: str, scratch: Path) -> list[Ratio]:
    ours = [GPUPREP, "drift", f"sim:{machine}", "--profile", "t4", "-q"]
    pair = in_turns(lambda: run(*ours), plain_playbook(machine, scratch, "--check"), 3)
    return [Ratio("drift of a finished host / ansible-playbook --check", *pair, 0.05)]


def memory() -> list[Ratio]:
    """Inside the machine, of the agent that is installed there."""
    run(GPUPREP, "drift", "schedule", f"sim:{MACHINE}", "--profile", "t4", "-q")
    try:
        script = Path(bench_memory.__file__).read_text()
        peak = json.loads(run(GPUPREP, "sim", "exec", MACHINE, "--", "python3", "-c", script))
    finally:
        run(GPUPREP, "drift", "unschedule", f"sim:{MACHINE}", "-q")
    return [
        Ratio(f"memory of {what} / of Python with its libraries", peak[what], peak["libraries"], limit, "MiB")
        for what, limit in bench_memory.LIMITS.items()
    ]


def compiled_on(machine: str) -> tuple[str, float]:
    """Build key of the machine's FFmpeg, and the seconds that this machine itself spent compiling it."""
    read = [GPUPREP, "sim", "exec", machine, "--", "cat"]
    manifest = json.loads(subprocess.check_output([*read, "/opt/gpuprep/ffmpeg/current/manifest.json"]))
    here = subprocess.run([*read, COMPILED], capture_output=True, text=True, check=False)
    compiled = json.loads(here.stdout) if here.returncode == 0 else {}
    return manifest["key"], float(compiled.get("seconds", 0)) if compiled.get("key") == manifest["key"] else 0.0


def trust_the_first(scratch: Path) -> None:
    """Its FFmpeg goes to the second host (docs/mirrors.md); the user's own folder of settings, less gpuprep's."""
    own, ours = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"), scratch / "config"
    (ours / "gpuprep").mkdir(parents=True)
    for path in own.iterdir() if own.is_dir() else ():
        if path.name != "gpuprep":
            (ours / path.name).symlink_to(path)
    (ours / "gpuprep" / "config.yml").write_text(f"builds:\n  from: ['sim:{MACHINE}']\n")
    os.environ["XDG_CONFIG_HOME"] = str(ours)


def second_host() -> list[Ratio]:
    """A second host of the same OS, architecture, versions and parts compiles nothing."""
    _, first = compiled_on(MACHINE)
    run(GPUPREP, "sim", "up", SECOND, "--os", "debian13", "--gpu", "t4")
    try:
        run(GPUPREP, "provision", f"sim:{SECOND}", "--profile", "t4", "--only", "driver,codec", "--no-validate", "-q")
        key, second = compiled_on(SECOND)
    finally:
        run(GPUPREP, "sim", "down", SECOND)
    return [Ratio(f"FFmpeg {key} compiled: second host / first", second, first or float("inf"), 0.0)]


def facts() -> list[Ratio]:
    """CPU seconds, and not of the clock: inside the machine, of the agent that is installed there."""
    script = Path(bench_facts.__file__).read_text()
    inside = [GPUPREP, "sim", "exec", MACHINE, "--", "python3", "-c", script]
    cpu = json.loads(subprocess.check_output(inside))
    what = "CPU of facts, less NVML's / of Python with its libraries"
    return [Ratio(what, cpu["facts"] - cpu["nvml"], cpu["libraries"], bench_facts.LIMIT)]


def verdict() -> list[Ratio]:
    """Time to verdict: what connecting, reading facts, judging and recording add to the probes' own seconds."""
    found = []
    for words in (["--quick"], []):
        command = [GPUPREP, "validate", f"sim:{MACHINE}", "--profile", "t4", "--json", "-q", *words]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        whole = time.perf_counter() - start
        (record,) = json.loads(done.stdout)["runs"]
        probes = sum(measurement["seconds"] for measurement in record["measurements"])
        found.append(Ratio(f"validate {' '.join(words)}".strip() + " / its probes", whole, probes, 1.3))
    return found


def parts(scratch: Path) -> dict[str, Callable[[], Iterable[Ratio]]]:
    return {
        "start": lambda: [start_up()],
        "finished": lambda: finished_host(MACHINE, scratch),
        "build": lambda: [Ratio("FFmpeg build / plain make -j of the same configure", *build(MACHINE), 1.15)],
        "second": second_host,
        "drift": lambda: drift(MACHINE, scratch),
        "sweep": lambda: bench_sweep.sweep(MACHINE),
        "memory": memory,
        "facts": facts,
        "verdict": verdict,
        "transcode": lambda: [
            Ratio("a transcode case / plain ffmpeg", *bench_transcode.transcode(), bench_transcode.LIMIT)
        ],
        "history": bench_history.history,
        "dashboard": bench_dashboard.dashboard,
        "trace": bench_trace.trace,
    }


def main(chosen: Sequence[str]) -> int:
    """Run the parts named on the command line, or all of them: see parts()."""
    print("Every machine here is simulated; ratios of two things timed in one run.")
    with tempfile.TemporaryDirectory(prefix="gpuprep-bench-") as name:
        known = parts(Path(name))
        if unknown := [part for part in chosen if part not in known]:
            sys.exit(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}")
        trust_the_first(Path(name))
        if not chosen or set(chosen) - WITHOUT_MACHINE:
            run(GPUPREP, "sim", "up", MACHINE, "--os", "debian13", "--gpu", "t4")
            run(GPUPREP, "provision", f"sim:{MACHINE}", "--profile", "t4", "-q")
        results = []
        for part in chosen or known:
            for ratio in known[part]():
                print(ratio, flush=True)
                results.append(ratio)
    return 0 if all(ratio.value <= ratio.limit for ratio in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
