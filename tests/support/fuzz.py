"""The fuzz of every decoder, as a program of its own: python tests/support/fuzz.py SEED INPUTS

Each input is a real document with something wrong in it, or one that a grammar made. A decoder may refuse it with the
errors that it declares, within a second; anything else is printed and ends the program with 1. The last line is JSON:
how many inputs each decoder had, the longest time and the growth of memory. tests/hostile/test_fuzz.py runs it.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import paramiko
from gemmrecords import gemm, gpu, values
from nightsfortests import a_plan, facts, result
from places import TESTS
from records_for_tests import SNAPSHOT, record

from gpuprep import settings
from gpuprep.agent import host_paths
from gpuprep.agent.facts import apt, modprobe, parse, xids
from gpuprep.agent.video import ffmpegerrors
from gpuprep.agent.video.sessions import Progress, steady_state
from gpuprep.catalogue import packagenames, versions
from gpuprep.desired import loading
from gpuprep.errors import GpuprepError, HostError, UsageError
from gpuprep.nightly import freshness, hooks, metrics, nightlyplan, notify
from gpuprep.provisioning.ansible_events import Events
from gpuprep.records import DecodeError, ProbeResult, RunRecord, Snapshot, Source, from_json, to_json
from gpuprep.remote import CommandResult, hostkeys, sshconfig
from gpuprep.workflows import record_file, schedule_state
from gpuprep.yamlfile import reader

SECONDS = 1.0  # of the processor, for one input
MEMORY_MIB = 256

# What breaks readers: control, bidirectional and half characters, ends of lines of all kinds, separators.
SIGNS = ["\0", "\x1b[2J", "\x7f", "\x85", "\u202e", "\u2028", "\ufeff", "\ud800", "\udfff\ud800", "\U000e0041", "é",
         "\r", "\n", "\r\n", "\t", '"', "'", "\\", "%", "{", "}", "[", "]", "&", "*", "#", "|", ":", "=", ",", "-", " ",
         "{{ 7*7 }}", "$(id)", "`id`", "\n== now\n", "../", "\\u0000", "\\777", "\\999", "١"]  # fmt: skip
NUMBERS = ["0", "-0", "-1", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1e-999", "9" * 19, "9" * 25, "1" * 5000,
           "18446744073709551616", "0.1", "1.", "00", "1_000", "0x10", "1e5", "true"]  # fmt: skip
WORDS = ["PASS", "2026-11-22T02:30:00+00:00", "2999-01-01T00:00:00+00:00", "9999-12-31T23:59:59-14:00", "0001-01-01",
         "2026-02-30T00:00:00+00:00", "2026-11-22", "yesterday", "", "None", "null", "missing", "550.163.01", "..",
         "1" * 400, "-rf", "~/.ssh", "file:///etc/shadow"]  # fmt: skip


class Grammar:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def text(self) -> str:
        return "".join(self.chance.choice(SIGNS + WORDS) for _ in range(self.chance.randrange(4)))

    def value(self, depth: int = 3) -> Any:
        """A JSON value of any kind; floats may be none."""
        kind = self.chance.randrange(9 if depth else 6)
        if kind == 0:
            return self.chance.choice([None, True, False])
        if kind == 1:
            return self.chance.choice([0, -1, 2**31, 2**63, 2**64, 10**30, 3.5, float("nan"), float("inf"), 1e308])
        if kind < 4:
            return self.text()
        if kind == 4:
            return {"missing": self.chance.choice(["not_read", 3, None, "\ud800"]), "detail": self.text()}
        if kind == 5:
            return self.chance.choice(WORDS)
        if kind < 8:
            return {self.text(): self.value(depth - 1) for _ in range(self.chance.randrange(4))}
        return [self.value(depth - 1) for _ in range(self.chance.randrange(4))]

    def json(self) -> str:
        """A JSON text, or nearly one."""
        kind = self.chance.randrange(8)
        if kind == 0:
            depth = self.chance.choice([1, 63, 64, 65, 500, 5000, 100_000])
            return self.chance.choice(["[", '{"a":']) * depth + self.chance.choice(["", "1" + "]" * depth])
        if kind == 1:
            return f'{{"run_id": {self.chance.choice(NUMBERS)}, "run_id": {self.chance.choice(NUMBERS)}}}'
        if kind == 2:
            return self.chance.choice(NUMBERS)
        return json.dumps(self.value(5), ensure_ascii=self.chance.random() < 0.5)

    def damaged(self, text: str) -> str:
        """`text` with one to three things wrong."""
        for _ in range(self.chance.randrange(1, 4)):
            at = self.chance.randrange(len(text) + 1)
            end = min(len(text), at + self.chance.choice([1, 1, 3, 20, 200]))
            kind = self.chance.randrange(7)
            if kind == 0:
                text = text[:at]
            elif kind == 1:
                text = text[:at] + text[end:]
            elif kind == 2:
                text = text[:end] + text[at:]
            elif kind == 3:
                text = text[:at] + self.chance.choice(NUMBERS) + text[end:]
            elif kind == 4:
                text = text[:at] + self.chance.choice(WORDS) + text[end:]
            elif kind == 5:
                text = text[:at] + text[at:end] * self.chance.choice([2, 10, 100]) + text[end:]
            else:
                text = text[:at] + self.chance.choice(SIGNS) + text[at:]
        return text

    def changed(self, document: Any) -> str:
        """A JSON document with another value at one place, of any depth."""
        whole: Any = [document]
        holder: Any = whole
        key: Any = 0
        while isinstance(here := holder[key], (dict, list)) and here and self.chance.random() < 0.85:
            keys = list(here) if isinstance(here, dict) else range(len(here))
            holder, key = here, self.chance.choice(keys)
        before = holder[key]
        holder[key] = self.value()
        text = json.dumps(whole[0], ensure_ascii=self.chance.random() < 0.5)
        holder[key] = before
        return text


@dataclass(frozen=True)
class Decoder:
    name: str
    share: int  # of 1000 inputs
    decode: Callable[[str], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[str, ...]
    is_json: bool = False


def cases(folder: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted((TESTS / "cases" / folder).glob("*.txt")))


def decoders(folder: Path) -> list[Decoder]:
    probed = ProbeResult("gemm", Source.SIMULATED, values(gpu("1eb8", [gemm("fp16", 30.0)])), 10.0)
    small = to_json(result())
    run = to_json(record("20261121-023107-0a1b2", measurements=(probed,)))
    plan = nightlyplan.to_text(a_plan())
    state = to_json(
        notify.State({"webhook": notify.Channel("0" * 64, "FAIL", "r-1", (notify.document(result(), ""),))})
    )
    profile_text = 'schema: 1\nname: fuzz\ngpu:\n  model: t4\ndriver:\n  branch: "550"\n'
    site = "mirrors:\n  ffmpeg: https://mirror.example/ffmpeg\nstore: sqlite:////srv/x.db\nforks: 10\n"
    key = "AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGVleGFtcGxlZXhhbXBsZWV4YW1wbGVleGFt"
    known = f"web1,10.0.0.1 ssh-ed25519 {key}\n@revoked * ssh-rsa AAAA\n|1|c2FsdA==|aGFzaA== ssh-ed25519 {key}\n"
    ssh = "Host web*\n  User admin\n  Port 2222\n  ProxyJump jump\nMatch host x\n  IdentityFile ~/.ssh/id\n"
    node = (
        "NodeName=gpu-1 Arch=x86_64\n   State=IDLE+DRAIN ThreadsPerCore=1\n   Reason=gpuprep: FAIL [root@2026-11-22]\n"
    )
    journal = "1763778600.123456 gpu-1 kernel: NVRM: Xid (PCI:0000:83:00): 79, pid=1234, name=python3, GPU fell off\n"
    kmsg = "4,1234,5678901,-;NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained\n DEVICE=x"
    units = cases("units")
    module = json.dumps({
        "changed": True, "msg": "non-zero return code", "rc": 1, "cmd": ["apt-get", "x"], "stderr": "E: x\ny",
        "stdout": "a\nb", "attempts": 1, "retries": 3, "diff": [{"before": "a\n", "after": "b\n"}],
        "results": [{"failed": True}],
    })  # fmt: skip
    frames = "frame=10\nfps=25\nout_time_us=400000\nprogress=continue\n"

    def of(kind: type[Any]) -> Callable[[str], object]:
        return lambda text: from_json(kind, text)

    def file(name: str, read: Callable[[Path], object]) -> Callable[[str], object]:
        path = folder / name

        def decode(text: str) -> object:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            return read(path)

        return decode

    def events(text: str) -> object:
        """What a module on a host answers; all around it is the runner's, and that an answer is an object."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict):
            return None
        told = Events(lambda _: None, folder / "events.log")
        for kind in ("runner_on_failed", "runner_on_ok", "runner_retry", "runner_item_on_ok", "runner_on_unreachable"):
            said = {"role": "gpu_driver", "task": "install", "duration": 1.5, "res": answer}
            told.handle({"event": kind, "stdout": text[:1000], "event_data": said})
        told.close()
        return told.failure

    def sections(text: str) -> object:
        class Host:
            name = "fuzz"

            def run(self, command: str, **_: object) -> CommandResult:
                mark = command.partition("'")[2].partition("'")[0]
                return CommandResult(0, text.replace("== ", f"{mark} ") if "§" not in text else text, "")

        found = schedule_state.read(Host())  # type: ignore[arg-type]
        return found.now, found.timer, found.machine, found.kept, freshness.fresh_for(found.text(host_paths.DRIFT_PLAN))

    def ssh_config(text: str) -> None:
        (folder / "ssh").write_bytes(text.encode("utf-8", "surrogatepass"))
        sshconfig.add(paramiko.SSHConfig(), folder / "ssh", "web1")

    def host_keys(text: str) -> object:
        (folder / "keys").write_bytes(text.encode("utf-8", "surrogatepass"))
        return hostkeys.load(hostkeys.Asked("web1", 22, (folder / "keys",)))

    def progress(text: str) -> object:
        told = Progress()
        for number, line in enumerate(text.encode("utf-8", "surrogatepass").splitlines(keepends=True)):
            told.feed(line, float(number))
        return steady_state([told])

    answer = "".join(f"\n== {name}\n{text}" for name, text in {
        host_paths.DRIFT_LAST: small, host_paths.DRIFT_PLAN: '{"drift": {"random_delay_minutes": 30}}',
        f"{host_paths.DRIFT_RESULTS}/results/20261121-023107-0a1b2.json": small, "hostname": "t4\n", "boot": "b\n",
        "now": "2026-11-21T11:00:00+00:00",
        "timer": "NextElapseUSecRealtime=Sun 2026-11-22 02:41:07 UTC\nLastTriggerUSec=\nActiveState=active\n",
    }.items())  # fmt: skip
    none: tuple[type[Exception], ...] = ()
    listed = [
        Decoder("record", 190, of(RunRecord), (DecodeError,), (small, run), is_json=True),
        Decoder("snapshot", 100, of(Snapshot), (DecodeError,), (to_json(SNAPSHOT),), is_json=True),
        Decoder("whole snapshot", 4, of(Snapshot), (DecodeError,), (to_json(facts()),), is_json=True),
        Decoder("probe", 120, of(ProbeResult), (DecodeError,), (to_json(probed),), is_json=True),
        Decoder("plan", 8, nightlyplan.from_text, (DecodeError,), (plan,), is_json=True),
        Decoder("state", 60, of(notify.State), (DecodeError,), (state,), is_json=True),
        Decoder("fresh for", 40, freshness.fresh_for, none, ('{"drift": {"random_delay_minutes": 30}}',), is_json=True),
        Decoder("record file", 20, file("r.json", lambda p: record_file.read(p, ("gemm",))), (UsageError,),
                (run, f'{{"measurements": [{to_json(probed)}]}}', f'{{"runs": [{small}]}}'),
                is_json=True),
        Decoder("profile", 8, file("p.yml", lambda p: loading.load(str(p))), (GpuprepError,), (profile_text,)),
        Decoder("yaml", 15, lambda text: reader.parse(text.encode("utf-8", "surrogatepass"), "x"), none,
                (profile_text, "a: [1, 2, {b: c}]\n")),
        Decoder("site", 12, file("s.yml", settings.load), (UsageError,), (site,)),
        Decoder("sections", 50, sections, (HostError,), (answer,)),
        Decoder("module", 30, events, none, (module,), is_json=True),
        Decoder("known hosts", 10, host_keys, (UsageError,), (known,)),
        Decoder("ssh config", 10, ssh_config, (UsageError,), (ssh,)),
        Decoder("version", 30, versions.parse, (ValueError,), ("550.163.01", "12.4", "9.10.2.21-1~deb13u1")),
        Decoder("version matches", 10, lambda text: packagenames.matches(text, "550"), none, ("550.163.01",)),
        Decoder("moment", 50, freshness.moment, none, ("2026-11-22T02:30:00+00:00", "2026-11-22T02:30:00.123+01:00")),
        Decoder("seconds", 50, metrics.seconds, none, ("2026-11-22T02:30:00+00:00",)),
        Decoder("slurm node", 20, lambda text: hooks.parse_node("gpu-1", text), (hooks.NoSlurm,), (node,)),
        Decoder("journal", 25, xids.from_journal, none, (journal * 3,)),
        Decoder("kmsg", 15, lambda text: xids.from_records([text], 1.7e9), none, (kmsg,)),
        Decoder("ffmpeg", 15, lambda text: ffmpegerrors.decisive_line(text.splitlines()), none, cases("ffmpeg_lines")),
        Decoder("progress", 5, progress, none, (frames,)),
        Decoder("modprobe", 15, lambda text: modprobe.of_file("f", text), none,
                ("options nvidia NVreg_EnableGpuFirmware=0 # x\nblacklist nouveau\n",)),
        Decoder("apt", 15, lambda text: apt.stanzas("f", text), none,
                ("Package: nvidia-*\nPin: version 550.*\nPin-Priority: 1001\n",)),
        Decoder("os-release", 10, parse.key_values, none, cases("key_values")),
        Decoder("dpkg", 6, parse.dpkg, none, cases("dpkg")),
        Decoder("rpm", 6, lambda text: parse.rpm(text, text), none, ("kernel\t0\t5.14.0-1.el9\n",)),
        Decoder("ldconfig", 6, lambda text: parse.ldconfig(text, "x86_64"), none, cases("ldconfig")),
        Decoder("modinfo", 6, parse.modinfo, none, cases("modinfo")),
        Decoder("mounts", 10, parse.mounts, none, cases("mounts")),
        Decoder("proc", 8, lambda text: (parse.proc_version(text), parse.proc_params(text)), none,
                cases("proc_version") + cases("proc_params")),
        Decoder("units", 6, parse.units, none, units),
        Decoder("modules", 6, lambda text: (parse.driver_modules(text), parse.loaded_modules(text)), none,
                cases("driver_modules")),
        Decoder("cudnn header", 4, parse.cudnn_header, none, cases("cudnn_header")),
        Decoder("kernel order", 5, lambda text: parse.debian_order(text[:255]), none, ("6.12.57+deb13-cloud-amd64",)),
    ]  # fmt: skip
    assert sum(one.share for one in listed) >= 1000, sum(one.share for one in listed)
    return listed


def inputs(decoder: Decoder, count: int, chance: random.Random) -> Iterator[str]:
    grammar = Grammar(chance)
    documents = [json.loads(seed) for seed in decoder.seeds] if decoder.is_json else []
    for number in range(count):
        kind = number % 10
        if kind == 0:
            yield (
                grammar.json() if decoder.is_json or chance.random() < 0.2 else grammar.text() * chance.choice([1, 50])
            )
        elif kind < 7 and documents:
            yield grammar.changed(chance.choice(documents))
        else:
            yield grammar.damaged(chance.choice(decoder.seeds))


def large(decoder: Decoder, chance: random.Random) -> Iterator[str]:
    """A few of a size that costs: whatever a limit lets through must be read within the second, too."""
    seed = chance.choice(decoder.seeds)
    yield seed * (200_000 // len(seed) + 1)
    yield " " * 200_000 + seed
    yield seed.replace("\n", "\n" * 500)[:300_000]
    if decoder.is_json:
        yield '{"values": [' + "{}," * 140_000 + "{}]}"
        yield '{"values": "' + "\\u202e" * 300_000 + '"}'
        yield '{"values": "' + "x" * 17_000_000 + '"}'
        yield "[" * 3_000_000
        yield "1" * 3_000_000


def feed(decoder: Decoder, text: str) -> tuple[float, str]:
    """Seconds of this process, and what went wrong."""
    began = time.process_time()
    try:
        decoder.decode(text)
    except decoder.errors:
        pass
    except Exception:  # noqa: BLE001  the find of this program
        return time.process_time() - began, traceback.format_exc(limit=-4)
    return time.process_time() - began, ""


def main(seed: int, count: int) -> int:
    chance = random.Random(seed)
    found: list[str] = []
    had: Counter[str] = Counter()
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        listed = decoders(Path(folder))
        total = sum(one.share for one in listed)
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for decoder in listed:
            share = -(-count * decoder.share // total)
            for text in large(decoder, chance):
                had[decoder.name] += 1
                slowest = max(slowest, check(decoder, text, found))
            for text in inputs(decoder, share, chance):
                had[decoder.name] += 1
                slowest = max(slowest, check(decoder, text, found))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024
    if grown > MEMORY_MIB:
        found.append(f"memory grew by {grown} MiB")
    for one in found[:20]:
        print(one)
    print(json.dumps({"inputs": had.total(), "slowest": slowest, "grown_mib": grown, "found": len(found), "had": had}))
    return 1 if found else 0


def check(decoder: Decoder, text: str, found: list[str]) -> tuple[float, str]:
    seconds, wrong = feed(decoder, text)
    if not wrong and seconds > SECONDS:
        seconds, wrong = min((feed(decoder, text) for _ in range(2)), key=lambda one: one[0])
        wrong = wrong or (f"took {seconds:.2f} s" if seconds > SECONDS else "")
    if wrong:
        found.append(f"{decoder.name}: {text[:300]!r} ({len(text)} signs)\n{wrong}")
    return seconds, decoder.name


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
