"""The way back from a change of the driver: what is kept, what is put back, and what a driver that works shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakeprograms import program

from gpuprep.agent.rollback import back, commands, working
from gpuprep.agent.rollback import saved as kept
from gpuprep.agent.rollback.packages import Apt, Failed, of_drivers
from gpuprep.agent.rollback.program import unfinished
from gpuprep.agent.rollback.save import Request, save
from gpuprep.agent.rollback.saved import Journal, Package, Saved
from gpuprep.agent.rollback.working import Seen

OLD, NEW = "595.71.05", "610.43.02"
PARTS = "(lib)?nvidia-|libcuda1$"


def saved(**changed: Any) -> Saved:
    files: dict[str, str | None] = dict.fromkeys(kept.SETTINGS)
    whole = Saved(OLD, True, "6.12.1-amd64", 2, 2, "2026-11-29T10:00:00Z", names=["libcuda1"], parts=PARTS, files=files)
    return dataclasses.replace(whole, **changed)


def seen(**changed: Any) -> Seen:
    return dataclasses.replace(Seen(OLD, [OLD], [OLD, OLD], "", 2, ""), **changed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ""),
        ({"loaded": ""}, "the loaded module is none, not 595.71.05"),
        ({"loaded": NEW}, f"the loaded module is {NEW}, not 595.71.05"),
        ({"libraries": [OLD, NEW]}, f"the libraries are {OLD}, {NEW}, not {OLD}"),
        ({"libraries": []}, "the libraries are not there"),
        ({"smi": [], "smi_error": "version mismatch"}, "nvidia-smi fails: version mismatch"),
        ({"smi": [OLD, NEW]}, "nvidia-smi says"),
        ({"smi": [OLD]}, "nvidia-smi shows 1 of 2 GPUs"),
        ({"smi": []}, "nvidia-smi shows 0 of 2 GPUs"),
        ({"cuda_devices": -1, "cuda_error": "cuInit answers 999"}, "CUDA does not start: cuInit answers 999"),
        ({"cuda_devices": 1}, "CUDA shows 1 of 2 devices"),
    ],
)
def test_what_a_driver_shows_is_compared_with_what_it_showed(changed: dict[str, Any], says: str) -> None:
    found = working.faults(seen(**changed), OLD, 2, 2)
    assert says in "; ".join(found)
    assert bool(found) == bool(says)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    one = saved(packages=[Package("libcuda1", f"{OLD}-1", f"libcuda1_{OLD}-1_amd64.deb", "0" * 64)], held=["libcuda1"])
    journal = Journal(kept.GOING_BACK, NEW, kept.AUTO, "boot", "now", done=["settings"], boots=1)
    kept.write_saved(one, tmp_path)
    kept.write_journal(journal, tmp_path)
    assert kept.read_saved(tmp_path) == one
    assert kept.read_journal(tmp_path) == journal
    assert (tmp_path / "state.json").stat().st_mode & 0o077 == 0
    kept.end_change(tmp_path)
    assert kept.read_journal(tmp_path) is None


DAMAGE: dict[str, Any] = {
    "no json": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another type": {"gpus": "2"},
    "a truth value": {"gpus": True},
    "an unknown key": {"shell": "rm"},
    "a path as a package": {"packages": [{"name": "../x", "version": "1"}]},
    "an option as a package": {"packages": [{"name": "--purge", "version": "1"}]},
    "a path as its file": {"packages": [{"name": "x", "version": "1", "file": "../../etc/x.deb"}]},
    "another key of a package": {"packages": [{"name": "x", "version": "1", "run": "x"}]},
    "words as a version": {"packages": [{"name": "x", "version": "1 2"}]},
    "packages as words": {"packages": ["x"]},
    "a file of somebody else": {"files": {"/etc/shadow": "x"}},
    "a number as a text": {"files": {"/etc/shadow": 1}},
    "no driver's version": {"driver": "$(reboot)"},
    "a path as a kernel": {"kernel": "../../x"},
    "an option as a hold": {"held": ["-x"]},
    "an option as a module": {"modules": ["-r"]},
    "a number as parts": {"parts": 1},
    "parts that are no expression": {"parts": "("},
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_not_what_we_write_is_refused(kind: str, tmp_path: Path) -> None:
    kept.write_saved(saved(), tmp_path)
    path = tmp_path / "state.json"
    change = DAMAGE[kind]
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(kept.Damaged, match=r"state\.json"):
        kept.read_saved(tmp_path)


def test_a_journal_without_its_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text('{"status": "pending"}')
    with pytest.raises(kept.Damaged):
        kept.read_journal(tmp_path)


def test_a_damaged_journal_keeps_nobody_from_going_back(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text("{")
    journal = kept.journal_if_any(tmp_path)
    assert journal is not None
    assert (journal.status, "journal.json" in journal.error) == (kept.STUCK, True)


def test_a_file_that_changed_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.deb").write_text(name)
    rows = [Package(name, "1", f"{name}.deb", kept.sha256(folder / f"{name}.deb")) for name in ("a", "b")]
    (folder / "b.deb").write_text("shorter")
    assert list(kept.sound_files(saved(packages=[*rows, Package("c", "1")]), tmp_path)) == ["a"]


BLOCK = '// BEGIN gpuprep: the driver packages\nBlacklist {\n  "^%s$";\n};\n// END gpuprep: the driver packages\n'
OTHER = '// BEGIN gpuprep: CUDA\n"^cuda$";\n// END gpuprep: CUDA\n'


@pytest.mark.parametrize(
    ("now", "before", "then"),
    [
        (OTHER + BLOCK % "new", BLOCK % "old", OTHER + BLOCK % "old"),
        (OTHER, BLOCK % "old", OTHER + BLOCK % "old"),
        (BLOCK % "new" + OTHER, OTHER, OTHER),
        (None, BLOCK % "old", BLOCK % "old"),
        (None, None, None),
        (BLOCK % "a\\1b", BLOCK % "c\\1d", BLOCK % "c\\1d"),
    ],
)
def test_of_the_holds_the_drivers_block_comes_back(now: str | None, before: str | None, then: str | None) -> None:
    assert back.with_block(now, before) == then


def test_of_the_locks_those_of_the_driver_come_back() -> None:
    of_now = f"# mine\nvim-2:9.0-1.el9.*\n# Added lock on Sunday\nlibcuda1-3:{NEW}-1.el9.*\n"
    before = f"emacs-1:29-1.el9.*\nlibcuda1-3:{OLD}-1.el9.*\n"
    assert back.with_locks(of_now, before, saved()) == f"# mine\nvim-2:9.0-1.el9.*\nlibcuda1-3:{OLD}-1.el9.*\n"
    assert back.with_locks(None, None, saved()) is None


def test_a_part_is_known_by_its_name_or_by_its_version() -> None:
    found = {
        "libcuda1": "1",
        "libnvidia-nvvm4": f"{OLD}-1",
        "nvidia-container-toolkit": "1.20.0-1",
        "nvidia-cuda-toolkit": "12.4.131-1",
        "linux-modules-nvidia-580-server-aws": "6.8",
        "vim": OLD,
    }
    names = ["libcuda1", "linux-modules-nvidia-*"]
    of_driver = {"libcuda1", "libnvidia-nvvm4", "linux-modules-nvidia-580-server-aws"}
    assert of_drivers(found, names, PARTS, [OLD]).keys() == of_driver
    assert of_drivers(found, names, PARTS, [""]).keys() == of_driver - {"libnvidia-nvvm4"}  # nor nvidia-cuda-toolkit


# ---------------------------------------------------------------- keeping


class Archive(Apt):
    """A package manager whose packages and files are the test's."""

    def __init__(self, packages: Mapping[str, str], has: Sequence[str] | None = None) -> None:
        self.packages = dict(packages)
        self.has = list(packages) if has is None else list(has)
        self.failures = 0
        self.needing: list[str] = []

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        return {name: v for name, v in self.packages.items() if "*" in names or name in names}

    def present(self, names: Sequence[str]) -> dict[str, str]:
        return self.installed(names)

    def held(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.packages]

    def fetch(self, packages: Mapping[str, str], folder: Path) -> None:
        for name in set(packages) & set(self.has):
            (folder / f"{name}_{packages[name]}_amd64.deb").write_text(name)

    def files(self, folder: Path, packages: Mapping[str, str]) -> dict[str, Path]:
        found = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
        return {name: path for name, path in found.items() if name in packages}

    def bytes_needed(self, packages: Mapping[str, str]) -> int:
        return len(packages)

    def removals(self, lost: Mapping[str, Path], gone: Sequence[str]) -> list[str]:  # noqa: ARG002
        return [*gone, *self.needing]

    def restore(self, lost: Mapping[str, Any], gone: Sequence[str], kept: Mapping[str, str]) -> None:  # noqa: ARG002
        if self.failures:
            self.failures -= 1
            raise Failed("no space left on device")
        self.packages = {name: v for name, v in self.packages.items() if name not in gone} | dict(kept)

    def hold(self, held: Sequence[str], names: Sequence[str]) -> None:
        pass


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that gives this machine a driver whose parts all agree."""
    programs = tmp_path / "bin"
    monkeypatch.setattr(commands, "PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(working, "LOADED", tmp_path / "version")
    monkeypatch.setattr(working, "CUDA", "print('[0, 1, \"\"]')")
    monkeypatch.setattr(back, "MODULES", tmp_path / "modules")
    monkeypatch.setattr(back, "SOURCES", tmp_path / "src")
    monkeypatch.setattr(back, "DKMS", tmp_path / "dkms")

    def driver(version: str, *, works: bool = True) -> None:
        library = tmp_path / f"libcuda.so.{version}"
        library.write_text("")
        (tmp_path / "version").write_text(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release\n"
        )
        program(programs / "nvidia-smi", f"echo {version}; exit {0 if works else 9}")
        lines = "".join(f"\\t{name} (libc6,x86-64) => {library}\\n" for name in working.LIBRARIES)
        program(programs / "ldconfig", f"printf '{lines}'")
        program(programs / "modinfo", f"echo {version}")
        for name in ("dkms", "depmod", "update-initramfs"):
            program(programs / name, "true")

    driver(OLD)
    return driver


REQUEST = Request(names=["libcuda1"], parts=PARTS, modules=["nvidia"])
SET = {"libcuda1": f"{OLD}-1", "libnvidia-nvvm4": f"{OLD}-1", "vim": "9"}
CHANGED = {"libcuda1": f"{NEW}-1", "libnvidia-gpucomp": f"{NEW}-1", "vim": "9"}


def certified(driver: str) -> Request:
    return dataclasses.replace(REQUEST, certified_run="20261129-1", certified_driver=driver)


@pytest.mark.usefixtures("machine")
def test_the_libraries_of_a_machine_with_an_arm_processor_are_found(tmp_path: Path) -> None:
    library = tmp_path / f"libcuda.so.{OLD}"
    lines = "".join(f"\\t{name} (libc6,AArch64) => {library}\\n" for name in working.LIBRARIES)
    program(tmp_path / "bin" / "ldconfig", f"printf '{lines}'")
    assert working.look().libraries == [OLD]


@pytest.mark.usefixtures("machine")
def test_the_driver_that_works_is_kept_with_its_files(tmp_path: Path) -> None:
    answer = save(REQUEST, Archive(SET), tmp_path)
    assert (answer.driver, answer.worked, answer.offline, answer.missing) == (OLD, True, True, [])
    found = kept.read_saved(tmp_path)
    assert found is not None
    assert [one.name for one in found.packages] == ["libcuda1", "libnvidia-nvvm4"]
    assert kept.sound_files(found, tmp_path).keys() == {"libcuda1", "libnvidia-nvvm4"}


@pytest.mark.usefixtures("machine")
def test_what_the_archive_no_longer_has_is_named(tmp_path: Path) -> None:
    answer = save(REQUEST, Archive(SET, has=["libcuda1"]), tmp_path)
    assert (answer.offline, answer.missing) == (False, ["libnvidia-nvvm4"])
    assert "any more" in answer.why


@pytest.mark.usefixtures("machine")
def test_with_rollback_never_no_file_is_fetched(tmp_path: Path) -> None:
    answer = save(dataclasses.replace(REQUEST, fetch=False), Archive(SET), tmp_path)
    assert (answer.driver, answer.offline) == (OLD, False)
    assert not list((tmp_path / "packages").iterdir())


@pytest.mark.usefixtures("machine")
def test_a_full_disk_is_said_and_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprep.agent.rollback.saved.SPARE_BYTES", 1 << 60)
    answer = save(REQUEST, Archive(SET), tmp_path)
    assert not answer.offline
    assert "MiB free" in answer.why


def test_a_certified_driver_stays_kept_until_another_is_certified(tmp_path: Path, machine: Any) -> None:
    assert save(certified(OLD), Archive(SET), tmp_path).driver == OLD
    machine(NEW)
    answer = save(certified(OLD), Archive(CHANGED), tmp_path)
    assert answer.driver == OLD
    assert "never certified" in answer.why
    assert save(certified(NEW), Archive(CHANGED), tmp_path).driver == NEW


def test_a_driver_that_does_not_work_never_takes_the_place_of_one_that_did(tmp_path: Path, machine: Any) -> None:
    machine(OLD, works=False)
    first = save(REQUEST, Archive(SET), tmp_path)
    assert (first.driver, first.worked) == (OLD, False)
    machine(NEW)
    assert save(REQUEST, Archive(CHANGED), tmp_path).driver == NEW
    machine(OLD, works=False)
    answer = save(REQUEST, Archive(SET), tmp_path)
    assert answer.driver == NEW
    assert "does not work" in answer.why


def test_what_was_set_since_is_kept_while_the_same_driver_does_not_work(tmp_path: Path, machine: Any) -> None:
    """As after a new kernel: its packages are there, and the module is not."""

    class Unheld(Archive):
        def held(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002
            return []

    save(REQUEST, Unheld(SET), tmp_path)
    machine(OLD, works=False)
    save(REQUEST, Archive(SET), tmp_path)
    found = kept.read_saved(tmp_path)
    assert found is not None
    assert (found.worked, found.held) == (True, ["libcuda1", "libnvidia-nvvm4"])
    save(REQUEST, Archive({**SET, "libcuda1": f"{NEW}-1"}), tmp_path)
    assert kept.read_saved(tmp_path) == found


def test_during_a_change_what_it_began_with_stays(tmp_path: Path, machine: Any) -> None:
    save(REQUEST, Archive(SET), tmp_path)
    kept.write_journal(Journal(kept.PENDING, NEW, kept.ASK, "boot", "now"), tmp_path)
    machine(NEW)
    assert save(REQUEST, Archive(CHANGED), tmp_path).driver == OLD


@pytest.mark.usefixtures("machine")
def test_a_damaged_set_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    assert save(REQUEST, Archive(SET), tmp_path).offline


# ---------------------------------------------------------------- going back


@pytest.fixture
def begun(tmp_path: Path, machine: Any) -> tuple[Saved, Journal]:
    """A change to NEW whose packages are in place; nothing of this computer is among the settings."""
    save(REQUEST, Archive(SET), tmp_path)
    found = kept.read_saved(tmp_path)
    assert found is not None
    del machine
    return dataclasses.replace(found, files={}), Journal(kept.GOING_BACK, NEW, kept.AUTO, "boot", "now")


def test_the_packages_of_before_come_and_those_of_the_change_go(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    manager = Archive(CHANGED)
    found = back.difference(begun[0], NEW, manager, tmp_path)
    assert {name: path.name for name, path in found.files.items()} == {
        "libcuda1": f"libcuda1_{OLD}-1_amd64.deb",
        "libnvidia-nvvm4": f"libnvidia-nvvm4_{OLD}-1_amd64.deb",
    }
    assert found.gone == ["libnvidia-gpucomp"]
    journal = back.go(*begun, manager, tmp_path)
    assert manager.packages == SET
    assert journal.done == ["settings", "packages", "modules", "initramfs", "holds"]
    assert kept.read_journal(tmp_path) == journal


def test_a_step_that_fails_is_the_first_that_is_done_again(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    manager = Archive(CHANGED)
    manager.failures = 1
    with pytest.raises(Failed, match="no space"):
        back.go(*begun, manager, tmp_path)
    journal = kept.read_journal(tmp_path)
    assert journal is not None
    assert journal.done == ["settings"]
    assert back.go(begun[0], journal, manager, tmp_path).done[-1] == "holds"
    assert manager.packages == SET


def test_a_damaged_file_comes_from_the_archive_first(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    (tmp_path / f"packages/libcuda1_{OLD}-1_amd64.deb").write_text("half")
    manager = Archive(CHANGED, has=["libcuda1"])
    back.go(*begun, manager, tmp_path)
    assert manager.packages == SET
    found = kept.read_saved(tmp_path)
    assert found is not None
    assert kept.sound_files(found, tmp_path).keys() == {"libcuda1", "libnvidia-nvvm4"}


@pytest.mark.parametrize(
    ("has", "needing", "says"),
    [
        ([], [], "no sound file of libcuda1, and the archive gave none. Nothing is changed"),
        (["libcuda1"], ["own-renderer"], "own-renderer would be removed: .*. Nothing is changed"),
    ],
)
def test_what_cannot_be_done_whole_is_not_begun(
    has: list[str], needing: list[str], says: str, tmp_path: Path, begun: tuple[Saved, Journal]
) -> None:
    (tmp_path / f"packages/libcuda1_{OLD}-1_amd64.deb").unlink()
    manager = Archive(CHANGED, has=has)
    manager.needing = needing
    with pytest.raises(Failed, match=says):
        back.go(*begun, manager, tmp_path)
    assert manager.packages == CHANGED
    assert kept.read_journal(tmp_path) is None


def test_on_a_full_disk_it_is_not_begun(
    tmp_path: Path, begun: tuple[Saved, Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SPARE_BYTES", 1 << 60)
    with pytest.raises(Failed, match=r"/usr has only \d+ MiB free\. Nothing is changed; make room"):
        back.go(*begun, Archive(CHANGED), tmp_path)


def test_a_driver_that_works_with_half_of_its_packages_is_not_ended(begun: tuple[Saved, Journal], machine: Any) -> None:
    """Loaded, and then the power went: its module is not on the disk for the next boot, and its packages are half."""

    class Cut(Archive):
        def present(self, names: Sequence[str]) -> dict[str, str]:
            return {**super().present(names), "libnvidia-ml1": f"{NEW}-1"}

    machine(NEW)
    assert unfinished(begun[0], NEW, Archive(CHANGED)) == []
    machine(OLD)
    assert unfinished(begun[0], NEW, Cut(CHANGED)) == [
        "half installed: libnvidia-ml1",
        f"the module on the disk is {OLD}, not {NEW}",
    ]


def test_without_the_module_of_before_it_has_failed(tmp_path: Path, begun: tuple[Saved, Journal], machine: Any) -> None:
    machine(NEW)
    with pytest.raises(Failed, match=rf"the module for kernel .* is {NEW}, not {OLD}"):
        back.go(*begun, Archive(CHANGED), tmp_path)


def test_an_initramfs_that_cannot_be_made_is_a_warning(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    program(tmp_path / "bin/update-initramfs", "echo 'cannot write: No space left on device' >&2; exit 1")
    (warning,) = back.go(*begun, Archive(CHANGED), tmp_path).warnings
    assert "update-initramfs: cannot write: No space left" in warning


def test_a_module_that_dkms_does_not_know_is_built_again(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    (tmp_path / f"src/nvidia-open-{OLD}").mkdir(parents=True)
    (tmp_path / f"src/nvidia-open-{OLD}/dkms.conf").write_text("")
    program(
        tmp_path / "bin/dkms", f"echo $* >>{tmp_path}/asked; mkdir -p {tmp_path}/dkms/nvidia-open/{OLD}/$(uname -r)"
    )
    for _ in range(2):
        back.go(*begun, Archive(CHANGED), tmp_path)
        asked = (tmp_path / "asked").read_text().splitlines()
        assert asked[0] == f"add -m nvidia-open -v {OLD}"
        assert [line.partition(" -k ")[0] for line in asked[1:]] == [f"install --force -m nvidia-open -v {OLD}"]


class Replacing(Archive):
    """As DKMS does it: the module that another one replaced comes back when that one goes, outside of any package."""

    def __init__(self, packages: Mapping[str, str], folder: Path) -> None:
        super().__init__(packages)
        self.folder = folder

    def restore(self, lost: Mapping[str, Any], gone: Sequence[str], kept: Mapping[str, str]) -> None:
        super().restore(lost, gone, kept)
        for path in (self.folder / "dkms/nvidia/original_module").rglob("nvidia.ko"):
            (self.folder / "modules").mkdir(exist_ok=True)
            path.rename(self.folder / "modules/nvidia.ko")
        replaced(self.folder, "nvidia-open")


def replaced(folder: Path, name: str) -> Path:
    path = folder / f"dkms/{name}/original_module/6.12.1-amd64/x86_64/nvidia.ko"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


@pytest.mark.parametrize("built", [True, False], ids=["dkms", "prebuilt"])
def test_no_module_comes_back_without_its_package(built: bool, tmp_path: Path, machine: Any) -> None:
    """But a prebuilt one, whose package may still be there and is then not installed again."""
    was = {**SET, "nvidia-kernel-open-dkms" if built else "kmod-nvidia": f"{OLD}-1"}
    save(dataclasses.replace(REQUEST, names=["libcuda1", "*nvidia*"]), Archive(was), tmp_path)
    del machine
    found = kept.read_saved(tmp_path)
    assert found is not None
    replaced(tmp_path, "nvidia")
    back.go(
        dataclasses.replace(found, files={}), Journal(kept.GOING_BACK, NEW, kept.AUTO, "boot", "now"),
        Replacing(CHANGED, tmp_path), tmp_path,
    )  # fmt: skip
    assert (tmp_path / "modules/nvidia.ko").exists() is not built
    assert not list((tmp_path / "dkms").glob("*/original_module"))  # nor when the driver of before goes


def test_what_dkms_knows_of_a_driver_whose_source_is_gone_goes(tmp_path: Path, begun: tuple[Saved, Journal]) -> None:
    for folder in (
        f"nvidia-open/{NEW}",
        "nvidia-open/original_module",
        f"nvidia/{OLD}",
        f"nvidia/{NEW}/source",
        "zfs/2.3",
    ):
        (tmp_path / "dkms" / folder).mkdir(parents=True)
    (tmp_path / "dkms/nvidia-open" / NEW / "source").symlink_to(tmp_path / "gone")
    back.go(*begun, Archive(CHANGED), tmp_path)
    left = sorted(str(path.relative_to(tmp_path / "dkms")) for path in (tmp_path / "dkms").glob("*/*"))
    assert left == [f"nvidia/{OLD}", f"nvidia/{NEW}", "zfs/2.3"]  # dkms itself takes away what has its source
