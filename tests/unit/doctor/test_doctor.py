"""gpuprep doctor: logs in, causes out; facts of a machine in, lines out; what the command prints and how it ends."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, resolved
from commandline import Shell, own_folders
from places import CASES
from validations_for_tests import t4

from gpuprep import doctor, records
from gpuprep.agent.facts import nextboot
from gpuprep.checks import commands
from gpuprep.doctor import facts
from gpuprep.records import (
    ContainerFacts,
    Finding,
    FolderFacts,
    LoadedLibrary,
    PackageManagerFacts,
    Snapshot,
    Status,
    UnitFacts,
)
from gpuprep.reports import doctor as shown


def cases(name: str) -> list[dict[str, str]]:
    text = (CASES / "doctor" / f"{name}.txt").read_text(encoding="utf-8")
    return [
        dict(zip(("says", "log"), re.split(r"(?:   .*)?\n", case, maxsplit=1), strict=True))
        for case in text.split("\n==== ")[1:]
    ]


LOGS = [case for name in ("reported", "public", "made") for case in cases(name)]
WANTED = resolved()
SOUND = finished_snapshot(WANTED)
SOUND_GPUS = SOUND.gpus if isinstance(SOUND.gpus, tuple) else ()
WITHOUT_PERSISTENCE = tuple(dataclasses.replace(gpu, persistence_mode=False) for gpu in SOUND_GPUS)
HALF_DONE = PackageManagerFacts({"nvidia-dkms-580": "half-configured"}, (), {})
FACTS = (CASES / "doctor" / "facts.txt").read_text(encoding="utf-8").splitlines()


def first(log: str) -> doctor.Diagnosis:
    return doctor.diagnose({"log": log})[0]


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["says"])
def test_a_log_says_its_cause_first(case: dict[str, str]) -> None:
    found = doctor.diagnose({"log": case["log"]})
    assert [each.id for each in found][:1] == [case["says"]]
    assert found[0].evidence
    assert found[0].do


@pytest.mark.parametrize("case", cases("healthy"), ids=lambda case: case["says"])
def test_a_log_of_what_works_says_nothing(case: dict[str, str]) -> None:
    assert [each.id for each in doctor.diagnose({"log": case["log"]}) if each.sure != "possible"] == []


@pytest.mark.parametrize("rule", doctor.rules(), ids=lambda rule: rule.id)
def test_each_rule_is_tried_and_reads_well_without_what_it_could_not_find(rule: doctor.Rule) -> None:
    assert rule.id in {case["says"] for case in LOGS} | {line.partition(":")[0] for line in FACTS}
    assert rule.gravity in doctor.GRAVITIES
    assert rule.sure in doctor.SURE
    assert rule.source
    assert all(each.parts for each in (*rule.any, *rule.all, *rule.none, *rule.also))
    assert set(rule.do) <= {"apt", "dnf", "any"}
    assert rule.cause.endswith((".", ")"))


def test_what_a_log_names_cannot_be_more_than_a_word_of_a_command() -> None:
    """The groups of a pattern that stand in commands: none finds what a shell or a terminal would act on."""
    for rule in doctor.rules():
        used = {name for steps in rule.do.values() for step in steps for name in re.findall(r"\{(\w+)\}", step)}
        for pattern in (*rule.any, *rule.all, *rule.also):
            for name, group in re.findall(r"\(\?P<(\w+)>((?:\[[^\]]*\]|\([^()]*\)|[^()\[])*)\)", pattern.source):
                for letter in "$`;|&\"'\\\n\x1b" if name in used else "\n\x1b":
                    assert not re.fullmatch(group, letter * 4), (rule.id, name, letter)


@pytest.mark.parametrize("line", FACTS)
def test_a_fact_says_its_cause(line: str) -> None:
    says, _, fact = line.partition(": ")
    assert first(fact).id == says


def test_commands_are_those_of_the_system() -> None:
    log = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-40-generic"
    assert "apt-get" in " ".join(doctor.diagnose({"log": log}, doctor.APT)[0].do)
    assert "dnf" in " ".join(doctor.diagnose({"log": log}, doctor.DNF)[0].do)
    by_log = log.replace("6.8.0-40-generic", "5.14.0-503.el9.x86_64")
    assert "apt-get" not in " ".join(first(by_log).do)


def test_a_command_has_what_the_log_names() -> None:
    log = "Error! Your kernel headers for kernel 5.15.0-1051-aws cannot be found at /lib/modules\napt-get"
    assert "sudo apt-get install linux-headers-5.15.0-1051-aws" in first(log).do


def test_a_log_in_another_language_is_understood_and_quoted_as_it_is() -> None:
    found = first("$ nvidia-smi\nbash: nvidia-smi: 未找到命令\n$ ")
    assert (found.id, found.evidence) == ("smi-missing", ("bash: nvidia-smi: 未找到命令",))


def test_no_words_of_a_log_get_into_a_command() -> None:
    """A log is somebody else's text: what is taken from it are versions, names and paths."""
    log = "Error! Your kernel headers for kernel 5.15$(reboot);`id` cannot be found\nMissing 6.1;rm kernel headers"
    for each in doctor.diagnose({"log": log}):
        assert "reboot" not in " ".join(each.do)
        assert "`id`" not in " ".join(each.do)
    secret = "\x1b]0;title\x07\x1b[31mFailed to initialize NVML: Driver/library version mismatch\x1b[0m"
    assert all(letter.isprintable() for each in doctor.diagnose({"log": secret}) for letter in "".join(each.evidence))


ALMOST = {  # texts that many patterns nearly find
    "short lines": "x NVRM: Xid\n",
    "a wrapped sentence without end": "NVRM: \n",
    "a beginning without its end": "Release file for Package NET/OFI Repository The repository \n",
    "beginnings on one line": "E: Failed to fetch Release file for NVLSM NCCL WARN nvidia libcuda " * 14 + "\n",
    "the first word of each rule": "\n".join(rule.any[0].words[0] for rule in doctor.rules() if rule.any[0].words)
    + "\n",
}


@pytest.mark.parametrize("lines", ALMOST.values(), ids=ALMOST)
def test_a_long_log_is_read_from_its_end_and_in_time_by_its_length(lines: str) -> None:
    took = []
    for length in (30_000, 120_000):
        log = (lines * (length // len(lines) + 1))[:length] + "\nbash: nvidia-smi: command not found\n"
        started = time.process_time()
        assert "smi-missing" in {each.id for each in doctor.diagnose({"log": log})}
        took.append(time.process_time() - started)
    assert took[1] < 12 * took[0]


def test_an_xid_without_a_rule_has_the_meaning_of_the_catalogue() -> None:
    found = first("NVRM: Xid (PCI:0000:00:1e): 38, pid=1, Channel 1")
    assert found.id == "xid-38"
    assert "firmware" in found.cause


def test_a_symptom_is_told_only_without_its_cause() -> None:
    symptom = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert [each.id for each in doctor.diagnose({"log": symptom})] == ["smi-cannot-communicate"]
    found = doctor.diagnose(
        {"log": symptom + "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"}
    )
    assert [each.id for each in found] == ["secure-boot-refuses-module"]


def test_a_sound_machine_has_nothing_wrong() -> None:
    assert facts.lines(SOUND) == ""
    assert facts.of_gpus(SOUND) == []
    assert facts.of_next_boot(SOUND) == []
    assert (
        doctor.diagnose({"facts": facts.lines(SOUND), "kernel": "nvidia: loading out-of-tree module taints kernel."})
        == []
    )


def changed(part: str, **values: Any) -> Snapshot:
    return dataclasses.replace(SOUND, **{part: dataclasses.replace(getattr(SOUND, part), **values)})


@pytest.mark.parametrize(
    ("kind", "what", "key", "command"),
    [
        (nextboot.INITRD_GONE, "/boot/initrd.img-6.1", "kernel.boot_entry", "update-initramfs"),
        (nextboot.BLOCKED, "modprobe.blacklist=nvidia", "driver.next_boot_options", "update-grub"),
        (nextboot.UNLISTED, "/lib/modules/6.1/updates/nvidia.ko", "driver.next_boot_file", "depmod"),
    ],
)
def test_what_the_boot_loader_starts_next_is_examined(kind: str, what: str, key: str, command: str) -> None:
    fault = records.BootFault(kind, what)
    boot = records.BootFacts("GRUB", "GRUB_DEFAULT=0", "Debian", "/boot/vmlinuz", "quiet", False, None, (fault,))
    (found,) = (each for each in facts.of_next_boot(changed("kernel", boot=boot)) if each.id == key)
    assert (found.gravity, found.sure) == ("unusable", "confirmed")
    assert what in found.evidence[0]
    assert command in " ".join(found.do)
    assert "`" not in " ".join(found.do)
    assert facts.of_next_boot(dataclasses.replace(changed("kernel", boot=boot), pci_gpus=())) == []


def test_an_initramfs_with_an_older_driver_is_told() -> None:
    (found,) = facts.of_next_boot(changed("driver", initramfs_stale="535.54.03"))
    assert (found.id, found.beware) == ("driver.initramfs", "Do not restart this machine before that.")
    assert "535.54.03" in found.cause


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        (bare_snapshot(gpus=()), "no-gpu-on-the-bus"),
        (bare_snapshot(), "driver-not-installed"),
        (changed("driver", module_version=None, loaded_version=None), "no-module-for-running-kernel-by-facts"),
        (changed("driver", loaded_version="535.54.03"), "library-and-module-differ"),
        (changed("driver", module_next_boot_version=None), "next-boot-without-module"),
        (changed("driver", module_next_boot_version="535.54.03"), "next-boot-with-another-module"),
        (changed("driver", nouveau_in_initramfs=True), "nouveau-in-initramfs"),
        (changed("driver", library_version=None), "nvml-library-missing"),
        (dataclasses.replace(SOUND, gpus=()), "gpus-missing"),
        (dataclasses.replace(SOUND, nvswitches=4), "fabric-manager-inactive"),
        (dataclasses.replace(SOUND, disk_free_mib={"/boot": 12}), "disk-nearly-full"),
        (dataclasses.replace(SOUND, folders={"/opt": FolderFacts("/opt", False, 12)}), "inodes-used-up"),
        (dataclasses.replace(SOUND, folders={"/opt": FolderFacts("/opt", True, 12)}), "read-only-file-system"),
        (dataclasses.replace(SOUND, units={"nvidia-persistenced.service": UnitFacts("masked", "inactive", (), "")}),
         "unit-masked"),
        (dataclasses.replace(SOUND, driver_libraries={"libcuda.so.1": LoadedLibrary("/o/l", "/o/libcuda.so.1", None)}),
         "libcuda-not-of-the-driver"),
        (dataclasses.replace(SOUND, package_manager=PackageManagerFacts({}, (), {"/lock": "apt (process 8)"})),
         "package-lock-held"),
        (dataclasses.replace(SOUND, gpus=WITHOUT_PERSISTENCE), "persistence-off"),
        (dataclasses.replace(SOUND, clock_ahead_seconds=86400), "clock-wrong"),
        (dataclasses.replace(SOUND, built=("/opt/gpuprep/ffmpeg/8.1-aa",), codec=dataclasses.replace(
            SOUND.codec, ffmpeg_real_path="/usr/local/bin/ffmpeg")),
         "ffmpeg-of-somebody-else-first"),
        (dataclasses.replace(SOUND, package_manager=HALF_DONE),
         "package-half-done"),
        (dataclasses.replace(SOUND, containers=ContainerFacts("1.17", ("all",), ("/dev/dri/renderD129",))),
         "cdi-specification-old"),
    ],
)  # fmt: skip
def test_facts_of_a_machine_say_what_is_wrong(snapshot: Snapshot, says: str) -> None:
    assert [each.id for each in doctor.diagnose({"facts": facts.lines(snapshot)}, doctor.APT)][:1] == [says]


def test_a_newer_kernel_without_a_module_is_told_once() -> None:
    there = changed("driver", module_version=None, loaded_version=None, module_next_boot_version=None)
    dkms = f"uname -r\n{there.kernel.running}\nnvidia/580.173.02, 6.1.0-1-amd64, x86_64: installed"
    found = [each.id for each in doctor.diagnose({"dkms": dkms, "facts": facts.lines(there)}, doctor.APT)]
    assert found == ["no-module-for-running-kernel-by-facts"]
    assert "headers-of-another-kernel" in [each.id for each in doctor.diagnose({"log": dkms})]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ({"headers_running": False, "headers_available": False}, "headers-not-offered"),
        ({"headers_running": False, "headers_available": records.Missing("not_installed", "no lists")}, ""),
        ({"secure_boot": True}, "secure-boot-without-key"),
    ],
)
def test_a_machine_without_a_driver_says_what_would_keep_it_away(kernel: dict[str, Any], says: str) -> None:
    bare = bare_snapshot()
    lines = facts.lines(dataclasses.replace(bare, kernel=dataclasses.replace(bare.kernel, **kernel)))
    found = [each.id for each in doctor.diagnose({"facts": lines}, doctor.APT)]
    assert found == ["driver-not-installed", *([says] if says else [])]


# ---------------------------------------------------------------- the command


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    own_folders(monkeypatch, tmp_path)
    return Shell(capsys)


def test_the_log_of_a_file(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(LOGS[0]["log"])
    code, out, _ = shell("doctor", "--log", str(log))
    assert code == 1
    assert "kernel-built-by-another-compiler" in out
    code, out, _ = shell("doctor", "--json", "--log", str(log))
    document = json.loads(out)
    assert document["examined"][0]["found"][0]["id"] == "kernel-built-by-another-compiler"
    assert document["exit_code"] == code == 1


def test_of_a_long_log_on_stdin_the_end_counts(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"nvidia-smi: command not found\n" + b"x\n" * (3 << 20) + b"Key was rejected by service\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log)))
    _, out, _ = shell("doctor", "--json", "--log", "-")
    assert [each["id"] for each in json.loads(out)["examined"][0]["found"]] == ["secure-boot-refuses-module"]


def test_a_log_without_anything_known_is_not_good_news(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"all is well\n")))
    code, out, _ = shell("doctor", "--log", "-")
    assert (code, "nothing that gpuprep knows" in out) == (3, True)


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "local", "--log", "-"], ["doctor", "--log", "/no/such/file"]])
def test_wrong_words_are_refused(shell: Shell, words: list[str]) -> None:
    assert shell(*words)[0] == 2


def test_a_host_that_cannot_be_reached_is_unknown_and_the_others_go_on(shell: Shell) -> None:
    code, out, _ = shell("doctor", "nobody@127.0.0.1:9", "nobody@127.0.0.1:1")
    assert (code, out.count("UNKNOWN")) == (3, 2)
    assert "127.0.0.1:9: nobody" not in out  # the host's name is not said twice


def test_a_bundle_has_no_secrets_addresses_and_names(shell: Shell, tmp_path: Path) -> None:
    text = "gpu7.example.org kernel: 10.1.2.3 GPU-11111111-2222-3333-4444-555555555555 /home/anna/x postgresql://u:geheim@db/x"
    files = dict(shown.bundle([doctor.Examined("admin@gpu7.example.org", False, {"kernel": text}, {}, ())], 0))
    assert set(files) == {"report.txt", "report.json", "host1/kernel.txt"}
    for told in ("gpu7", "10.1.2.3", "11111111", "anna", "geheim", "admin"):
        assert not any(told in file for file in files.values()), told
    log, path = tmp_path / "log.txt", tmp_path / "bundle.tar.gz"
    log.write_text(text)
    assert "bundle: report.txt" in shell("doctor", "--log", str(log), "--bundle", str(path))[2]
    with tarfile.open(path) as archive:
        assert "host1/log.txt" in archive.getnames()
    assert shell("doctor", "--log", str(log), "--bundle", str(path))[0] == 2


def test_a_report_names_doctor_where_the_driver_fails() -> None:
    record = t4()
    assert record.verdict is not None
    assert not [line for line in commands.suggested(record) if "doctor" in line.line]
    broken = Finding("driver", "loaded", Status.FAIL, "a driver", "none", "no driver is loaded")
    failed = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, findings=(broken,)))
    assert "gpuprep doctor" in " ".join(line.line for line in commands.suggested(failed))
