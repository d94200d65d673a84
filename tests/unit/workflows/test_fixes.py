"""What --fix would do, as commands, and those commands on real files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load, resolved
from hypothesis import example, given
from hypothesis import strategies as st
from rolevalues import ROLES

from gpuprep import checks, records, remote
from gpuprep.agent import __main__, host_paths
from gpuprep.agent.facts import managed
from gpuprep.desired import state
from gpuprep.workflows import fixes

WANTED = resolved()
FINISHED = finished_snapshot(WANTED)
TUNED = "systemctl restart gpuprep-tune.service"


def failed(*keys: str) -> list[records.Finding]:
    split = [key.rpartition(".") for key in keys]
    return [records.Finding(subject, prop, records.Status.FAIL, "1", "2", role="gpu_x") for subject, _, prop in split]


def commands(*keys: str) -> list[str]:
    return [one.command for one in fixes.plan(WANTED, FINISHED, failed(*keys))]


def test_a_finished_host_has_nothing_to_put_back() -> None:
    found = checks.compare(WANTED, FINISHED)
    assert fixes.plan(WANTED, FINISHED, found) == []


def test_one_command_for_all_settings_of_all_gpus() -> None:
    keys = ("gpu 0.clocks", "gpu 1.power_limit", "gpu 0.compute_mode", "gpu 0.persistence_mode")
    (planned,) = fixes.plan(WANTED, FINISHED, failed(*keys))
    assert planned.command == TUNED
    assert planned.findings == keys


def test_units_come_before_what_they_apply() -> None:
    found = commands("gpu 0.clocks", "nvidia-persistenced.active", "gpuprep-tune.enabled")
    assert found == [
        "systemctl enable --now nvidia-persistenced.service",
        "systemctl enable gpuprep-tune.service",
        TUNED,
    ]


def test_a_masked_unit_is_unmasked_and_an_absent_one_left() -> None:
    key = "nvidia-persistenced.enabled"
    for enabled, expected in (
        (
            "masked",
            ["systemctl unmask nvidia-persistenced.service && systemctl enable --now nvidia-persistenced.service"],
        ),
        ("not-found", []),
    ):
        units = {**FINISHED.units, managed.PERSISTENCED: records.UnitFacts(enabled, "inactive")}
        snapshot = dataclasses.replace(FINISHED, units=units)
        assert [one.command for one in fixes.plan(WANTED, snapshot, failed(key))] == expected


def test_settings_that_are_not_the_wanted_ones_are_not_applied() -> None:
    assert commands("gpu 0.clocks", "gpuprep-tune.settings") == []
    assert commands("gpuprep-tune.enabled", "gpuprep-tune.settings") == ["systemctl enable gpuprep-tune.service"]


def test_only_what_is_installed_and_free_is_held() -> None:
    free, gone = WANTED.driver.packages[:2]
    packages = {**FINISHED.packages, free: records.Package("550.163.01-2", False)}
    del packages[gone]
    snapshot = dataclasses.replace(FINISHED, packages=packages)
    (planned,) = fixes.plan(WANTED, snapshot, failed("driver.held", "cuda.held"))
    assert planned.command == f"apt-mark hold {free}"
    unheld = state.resolve(load(driver={"hold": False}), FINISHED)
    assert fixes.plan(unheld, snapshot, failed("driver.held")) == []


@pytest.mark.parametrize("said", ["/usr/bin/nvidia-smi is gone", "/usr/src/nvidia-1/Kbuild is gone"])
def test_packages_with_sources_of_a_module_are_left_to_the_role(said: str) -> None:
    """Their script builds the module, and fails where DKMS has no tree; the role makes that first."""
    there = {**FINISHED.packages, "nvidia-kernel-dkms": records.Package("550.163.01-2", held=True)}
    broken: dict[str, tuple[str, ...]] = {"nvidia-kernel-dkms": (said,), "libcuda1": ("/usr/lib/libcuda.so.1 is gone",)}
    snapshot = dataclasses.replace(FINISHED, packages=there, package_files=broken)
    made = [one.command.rpartition(" install ")[2] for one in fixes.plan(WANTED, snapshot, failed("driver.files"))]
    options = "--reinstall --no-install-recommends --allow-change-held-packages --no-remove"
    again = f"{options} libcuda1={there['libcuda1'].version} nvidia-kernel-dkms=550.163.01-2"
    held = "apt-mark hold libcuda1 nvidia-kernel-dkms"
    assert made == ([] if "/usr/src" in said else [f"{again}; failed=$?; {held} && (exit $failed)"])


def test_what_needs_a_package_a_reboot_or_a_role_is_left() -> None:
    left = """
        driver.version
        driver.loaded
        driver.packages
        gpu 0.ecc
        gpu 0.mig
        cuda.version
        kernel.next_boot
        nouveau.blacklist
        driver.modprobe_options
        agent.version
        gpuprep-tune.settings
        nvidia-persistenced.mode_at_boot
        login shell.nvcc
        extras.tmux
        ffmpeg.files
        provenance.file
    """
    assert commands(*map(str.strip, left.strip().splitlines())) == []


# ---------------------------------------------------------------- pins, streams, holds


def of_nvidia(os: str, **parts: object) -> tuple[state.Wanted, records.Snapshot]:
    wish = {
        "driver": {"source": "nvidia", "version": "580"},
        "cuda": {"version": "12.8"},
        "containers": {"toolkit": "auto"},
    }
    wanted = state.resolve(load("t4", **{**wish, **parts}), bare_snapshot(os))
    return wanted, finished_snapshot(wanted)


def only_command(wanted: state.Wanted, snapshot: records.Snapshot, key: str) -> str:
    (planned,) = fixes.plan(wanted, snapshot, failed(key))
    return planned.command


def run_below(folder: Path, command: str, path: str) -> str:
    """What the command writes to `path`, with the folders of the host below `folder`."""
    (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
    etc = command.replace(" /etc/", f" {folder}/etc/").replace(">/etc/", f">{folder}/etc/")
    subprocess.run(["/bin/sh", "-c", etc], check=True)
    written = folder / path.lstrip("/")
    assert written.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in written.parent.iterdir()] == [written.name]
    return written.read_text()


def test_a_pin_that_is_gone_comes_back_as_the_role_writes_it(tmp_path: Path) -> None:
    wanted, snapshot = of_nvidia("ubuntu2404")
    template = ROLES / "gpu_driver" / "templates/pin.j2"
    said = jinja2.Template(template.read_text(), keep_trailing_newline=True).render(gpu_driver_pin="580.178.04")
    assert run_below(tmp_path, only_command(wanted, snapshot, "driver.pinned"), host_paths.PIN) == said
    data = {"pinned": ["cuda-toolkit-config-common", "cuda-toolkit-12-config-common"], "pin": "12.8.*"}
    template = ROLES / "gpu_cuda" / "templates/pin.j2"
    said = jinja2.Template(template.read_text(), keep_trailing_newline=True).render(gpu_cuda_data=data)
    assert run_below(tmp_path / "2", only_command(wanted, snapshot, "cuda.pinned"), host_paths.CUDA_PIN) == said


def test_no_pin_is_written_to_a_driver_that_is_not_the_wished_one() -> None:
    wanted, snapshot = of_nvidia("ubuntu2404")
    for version in ("570.211.01", None, records.Missing("unparsable", "x")):
        driver = dataclasses.replace(snapshot.driver, module_version=version)
        other = dataclasses.replace(snapshot, driver=driver)
        assert fixes.plan(wanted, other, failed("driver.pinned")) == []


def test_what_keeps_unattended_upgrades_off_comes_back_as_the_roles_write_it(tmp_path: Path) -> None:
    wanted, snapshot = of_nvidia("debian12")
    tasks = yaml.safe_load((ROLES / "gpu_preflight" / "tasks/holds_apt.yml").read_text())
    block = next(task["ansible.builtin.blockinfile"] for task in tasks if "ansible.builtin.blockinfile" in task)
    expected = ""
    for role, title, names in (
        ("gpu_driver/tasks/hold.yml", "the driver packages", wanted.driver.packages),
        ("gpu_cuda/tasks/toolkit.yml", "the CUDA toolkit", wanted.cuda.packages),
        ("gpu_containers/tasks/toolkit.yml", "the container toolkit", wanted.containers.packages),
    ):
        assert f"gpu_preflight_hold_title: {title}\n" in (ROLES / role).read_text()
        words = {"gpu_preflight_hold": names, "gpu_preflight_hold_title": title}
        lines = jinja2.Template(block["block"], trim_blocks=True, keep_trailing_newline=True).render(words)
        begin, end = (
            jinja2.Template(block["marker"]).render(words).replace("{mark}", mark) for mark in ("BEGIN", "END")
        )
        expected += f"{begin}\n{lines}{end}\n"
    expected = expected.replace("// {mark}", "")
    assert (
        run_below(tmp_path, only_command(wanted, snapshot, "driver.unattended_upgrades"), host_paths.HOLDS) == expected
    )
    right = dataclasses.replace(
        snapshot, files={**snapshot.files, host_paths.HOLDS: expected}
    )  # another file undoes it
    assert fixes.plan(wanted, right, failed("driver.unattended_upgrades")) == []


def test_dnfs_stream_is_enabled_again_and_locks_say_why_they_cannot_be(tmp_path: Path) -> None:
    wanted, snapshot = of_nvidia("rocky9")
    command = only_command(wanted, snapshot, "driver.stream")
    assert command == "dnf -q -y --setopt=module_stream_switch=true module enable nvidia-driver:580-open"
    packages = {**snapshot.packages, "libnvidia-ml": records.Package("580.178.04-1.el9", False)}
    command = only_command(wanted, dataclasses.replace(snapshot, packages=packages), "driver.held")
    for there, code in (("exit 0", 0), ('case "$*" in *versionlock*) echo "No such command" >&2; exit 1;; esac', 1)):
        (tmp_path / "dnf").write_text(f'#!/bin/sh\necho "$*"\n{there}\n')
        (tmp_path / "dnf").chmod(0o755)
        done = subprocess.run(
            ["/bin/sh", "-c", command], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True
        )
        assert done.returncode == code
        assert ("versionlock add libnvidia-ml" in done.stdout) == (code == 0)
        assert ("plugins=0 in /etc/dnf/dnf.conf" in done.stderr) == (code == 1)


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", True),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=\nprofiles=\nstate=\n", False),
        ("[nvidia-driver]\nstream=580-open\nstate=disabled\n", False),
        ("", False),
    ],
)
def test_the_stream_that_dnf_has_enabled(text: str, enabled: bool) -> None:
    wanted, snapshot = of_nvidia("rocky9")
    found = checks.compare(
        wanted, dataclasses.replace(snapshot, files={**snapshot.files, host_paths.DRIVER_STREAM: text})
    )
    status = next(one.status for one in found if one.key == "driver.stream")
    assert status is (records.Status.PASS if enabled else records.Status.FAIL)


def waived(*keys: str) -> list[records.Finding]:
    return [dataclasses.replace(one, status=records.Status.WAIVED, waived="FAIL") for one in failed(*keys)]


@pytest.mark.parametrize(
    ("key", "accepted"),
    [
        ("gpu 0.persistence_mode", "gpu 0.power_limit"),
        ("gpu 0.persistence_mode", "gpu 1.clocks"),
        ("gpu 0.clocks", "gpu 1.compute_mode"),
        ("gpu 0.clocks", "gpu 0.ecc"),  # tune apply sets what the next boot brings
        ("gpu 0.clocks", "gpuprep-tune.active"),
        ("gpuprep-tune.active", "gpu 0.persistence_mode"),
        ("gpu 0.clocks", "gpuprep-tune.settings"),  # somebody's tuning.json
        ("nvidia-persistenced.enabled", "nvidia-persistenced.active"),
        ("nvidia-persistenced.active", "gpu 0.power_limit"),  # the daemon's start starts gpuprep-tune
        ("ffmpeg.version", "ffmpeg.path"),
        ("cudnn.header", "cudnn.library"),
        ("cudnn.header", "libnvcuvid.loader"),
        ("libcuda.loader", "libnvcuvid.loader"),
        ("cuda.cupti", "cudnn.library"),
    ],
)
def test_what_is_waived_is_not_undone_together_with_what_failed(key: str, accepted: str) -> None:
    assert commands(key) != []
    found = [dataclasses.replace(one, remedy="provision") for one in (*failed(key), *waived(accepted))]
    assert fixes.plan(WANTED, FINISHED, found) == []
    left = (
        "`gpuprep drift HOST --profile PROFILE --fix` does not repair it, because its command would also change "
        f"{accepted}, which is WAIVED; or: provision"
    )
    for fixing in (False, True):
        told = fixes.offered(WANTED, FINISHED, found, fixing=fixing)
        assert [one.remedy for one in told] == [left, "provision"]


def test_waivers_of_something_else_forbid_nothing() -> None:
    others = waived("gpu 0.memory_errors", "driver.version", "gpuprep-tune.enabled", "cuda.held", "ffmpeg.files")
    keys = ("driver.held", "gpu 0.clocks", "nvidia-persistenced.active", "ffmpeg.path", "libcuda.loader")
    free = dataclasses.replace(FINISHED, packages={WANTED.driver.packages[0]: records.Package("1", False)})
    planned = fixes.plan(WANTED, free, [*failed(*keys), *others])
    assert {key for one in planned for key in one.findings} == set(keys)


def test_of_many_that_are_waived_the_first_is_named() -> None:
    found = [*failed("gpu 0.clocks"), *waived("gpu 0.power_limit", "gpu 1.power_limit", "gpu 2.power_limit")]
    remedy = fixes.offered(WANTED, FINISHED, found)[0].remedy
    assert "gpu 0.power_limit, which is WAIVED (and 2 more of that kind)" in remedy


def test_a_unit_whose_masking_is_waived_is_not_unmasked_for_another_finding() -> None:
    masked = dataclasses.replace(
        FINISHED, units={**FINISHED.units, managed.TUNE: records.UnitFacts("masked", "active")}
    )
    found = [*failed("gpu 0.clocks"), *waived("gpuprep-tune.enabled")]
    assert fixes.plan(WANTED, masked, found) == []
    assert [one.command for one in fixes.plan(WANTED, FINISHED, found)] == [TUNED]


@pytest.mark.parametrize("status", [records.Status.FAIL, records.Status.UNKNOWN, records.Status.WAIVED])
def test_settings_are_applied_only_where_they_are_known_to_be_the_wanted_ones(status: records.Status) -> None:
    (settings,) = failed("gpuprep-tune.settings")
    found = [*failed("gpu 0.clocks"), dataclasses.replace(settings, status=status)]
    assert fixes.plan(WANTED, FINISHED, found) == []
    assert f"change gpuprep-tune.settings, which is {status.value}" in fixes.offered(WANTED, FINISHED, found)[0].remedy
    found[1] = dataclasses.replace(settings, status=records.Status.PASS)
    assert [one.command for one in fixes.plan(WANTED, FINISHED, found)] == [TUNED]


@pytest.mark.parametrize(("failing", "accepted"), [("driver.held", "cuda.held"), ("cuda.held", "driver.held")])
def test_packages_whose_hold_is_waived_are_not_held(failing: str, accepted: str) -> None:
    names = {"driver.held": WANTED.driver.packages, "cuda.held": WANTED.cuda.packages}
    free = {name: records.Package("1", False) for name in (*WANTED.driver.packages, *WANTED.cuda.packages)}
    snapshot = dataclasses.replace(FINISHED, packages=free)
    (planned,) = fixes.plan(WANTED, snapshot, [*failed(failing), *waived(accepted)])
    assert planned.findings == (failing,)
    assert planned.command.split() == ["apt-mark", "hold", *names[failing]]


@pytest.mark.parametrize("status", [s for s in records.Status if s is not records.Status.FAIL])
def test_only_what_failed_is_put_back(status: records.Status) -> None:
    found = [dataclasses.replace(one, status=status) for one in failed("gpu 0.clocks", "driver.held")]
    assert fixes.plan(WANTED, FINISHED, found) == []


def test_a_host_that_gpuprep_does_not_provision_is_left_alone() -> None:
    assert fixes.plan(dataclasses.replace(WANTED, installs=False), FINISHED, failed("gpu 0.clocks")) == []


def test_what_can_be_put_back_says_so() -> None:
    found = [dataclasses.replace(one, remedy="provision") for one in failed("gpu 0.clocks", "driver.version")]
    first, second = fixes.offered(WANTED, FINISHED, found)
    assert first.remedy == "`gpuprep drift HOST --profile PROFILE --fix` puts it back; or: provision"
    assert second == found[1]
    assert list(fixes.offered(WANTED, FINISHED, found, fixing=True)) == found  # --fix itself has just tried


def test_a_link_to_a_build_that_is_gone_is_not_promised() -> None:
    (found,) = fixes.offered(WANTED, FINISHED, failed("ffmpeg.path"))
    assert "--fix` puts it back" in found.remedy
    for built, offers in (((), False), ((WANTED.ffmpeg_directory,), True)):
        snapshot = dataclasses.replace(FINISHED, built=built)
        (found,) = fixes.offered(WANTED, snapshot, failed("ffmpeg.path"))
        assert ("--fix`" in found.remedy) is offers


def test_the_loaders_cache_is_renewed_for_what_is_there() -> None:
    for unlisted, offers in (((), False), (("libcuda.so.1",), True)):
        snapshot = dataclasses.replace(FINISHED, unlisted=unlisted)
        assert bool(fixes.plan(WANTED, snapshot, failed("libcuda.so.1.loader"))) is offers


def test_what_no_role_repairs_is_not_promised() -> None:
    (found,) = (dataclasses.replace(one, role="", remedy="remove it") for one in failed("ffmpeg.path"))
    assert fixes.offered(WANTED, FINISHED, [found]) == (found,)


def test_a_command_that_ran_and_changed_nothing_says_so() -> None:
    (before,) = failed("driver.held")
    fix = records.Fix(before.key, "hold", "apt-mark hold x", 0)
    for status, stays in ((records.Status.FAIL, True), (records.Status.UNKNOWN, True), (records.Status.PASS, False)):
        (seen,) = fixes.seen([fix], [before], [dataclasses.replace(before, status=status)])
        assert seen.stays is stays
    assert not fixes.seen([fix], [before], [])[0].stays


def test_the_loaders_list_comes_back_as_the_role_writes_it(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLES / "gpu_cudnn" / "tasks/cudnn.yml").read_text())
    said = next(task["ansible.builtin.copy"]["content"] for task in tasks if "ansible.builtin.copy" in task)
    said = said.replace("{{ gpu_cudnn_prefix }}", WANTED.cudnn.prefix)
    (command,) = commands("cudnn.library")
    assert host_paths.LOADER_LIST in command
    part = next(part for part in command.split(" && ldconfig")[0].split(" && (") if "umask" in part)
    assert run_below(tmp_path, f"({part}", host_paths.LOADER_LIST) == said
    there = dataclasses.replace(FINISHED, files={**FINISHED.files, host_paths.LOADER_LIST: said})
    (planned,) = fixes.plan(WANTED, there, failed("cudnn.library"))
    assert host_paths.LOADER_LIST not in planned.command


KEYS = [one.key for one in checks.compare(WANTED, FINISHED)]


def test_of_all_that_can_fail_some_is_put_back() -> None:
    assert len(fixes.plan(WANTED, FINISHED, failed(*KEYS))) >= 5


@example(KEYS)
@given(st.lists(st.sampled_from(KEYS), unique=True))
def test_no_command_installs_removes_reboots_or_writes_a_setting(keys: list[str]) -> None:
    for one in fixes.plan(WANTED, FINISHED, failed(*keys)):
        assert set(one.findings) <= set(keys)
        if one.findings[0].startswith("driver.next_boot"):  # the module is built, and headers come from the archive
            assert one.command.startswith(("dkms install --force nvidia", "DEBIAN_FRONTEND=noninteractive apt-get"))
            continue
        assert not set(one.command.split()) & {
            "install",
            "remove",
            "reboot",
            "purge",
            "apt",
            "apt-get",
            "rm",
            "tee",
            ">",
        }


# ---------------------------------------------------------------- running them


class OneAnswer(remote.Host):
    def __init__(self, answer: remote.CommandResult) -> None:
        super().__init__(remote.Target("box", local=True))
        self.answer = answer

    def run(
        self, command: str, *, stdin: bytes = b"", become: bool = False, timeout: float | None = None
    ) -> remote.CommandResult:
        assert command == TUNED
        assert become
        assert timeout
        assert not stdin
        return self.answer


def test_a_fix_is_recorded_for_each_finding_and_a_failure_says_why() -> None:
    planned = fixes.Planned(("gpu 0.clocks", "gpu 0.power_limit"), "set them", TUNED)
    assert fixes.apply(OneAnswer(remote.CommandResult(0, "noise", "noise")), planned) == [
        records.Fix("gpu 0.clocks", "set them", TUNED, 0),
        records.Fix("gpu 0.power_limit", "set them", TUNED, 0),
    ]
    (first, _) = fixes.apply(OneAnswer(remote.CommandResult(1, "", "x" * 400 + "Unit not found.\n")), planned)
    assert (first.exit_code, first.said[-15:], len(first.said)) == (1, "Unit not found.", 300)


def test_before_and_after_are_what_the_checks_found() -> None:
    done = [records.Fix("gpu 0.clocks", "set them", TUNED, 0), records.Fix("waiver.x", "none", TUNED, 0)]
    before = [records.Finding("gpu 0", "clocks", records.Status.FAIL, "1590 MHz", "585 MHz"), *failed("waiver.x")]
    after = [records.Finding("gpu 0", "clocks", records.Status.PASS, "1590 MHz", "1590 MHz")]
    first, second = fixes.seen(done, before, after)
    assert (first.before, first.after) == ("585 MHz", "1590 MHz")
    assert (second.before, second.after) == ("2", "")


def sealed(folder: Path, *, sizes: bool = False) -> Path:
    """A folder as a role leaves it: a file and its manifest."""
    program = folder / "bin" / "ffmpeg"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho wanted\n")
    program.chmod(0o755)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    entry = {"size": program.stat().st_size, "sha256": digest} if sizes else digest
    (folder / "manifest.json").write_text(json.dumps({"files": {"bin/ffmpeg": entry}}))
    return program


@pytest.mark.parametrize("sizes", [False, True])
def test_the_agent_says_whether_a_folder_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: bool
) -> None:
    program = sealed(tmp_path / "x", sizes=sizes)
    assert __main__.main(["whole", str(tmp_path / "x")]) == 0
    program.write_text("#!/bin/sh\necho chanted\n")
    assert __main__.main(["whole", str(tmp_path / "x")]) == 1
    assert "not those that were installed" in capsys.readouterr().err
    assert __main__.main(["whole", str(tmp_path / "none")]) == 1
    assert "no manifest.json" in capsys.readouterr().err
    (tmp_path / "x" / "manifest.json").write_text("{")
    assert __main__.main(["whole", str(tmp_path / "x")]) == 1
    assert "unparsable" in capsys.readouterr().err


def linking(targets: dict[str, str]) -> str:
    """The command that puts FFmpeg's links back, for other links; without the look at its files before it."""
    (command,) = commands("ffmpeg.path")
    functions, _, _ = command.partition(" && ")[2].partition(" && put_link ")
    return " && ".join(
        [functions, *(f"put_link {shlex.quote(link)} {shlex.quote(to)}" for link, to in targets.items())]
    )


def put_links(targets: dict[str, str]) -> int:
    return subprocess.run(["sh", "-c", linking(targets)], check=False, capture_output=True).returncode


@pytest.mark.parametrize("there", ["nothing", "another link", "a file", "a broken link"])
def test_a_link_is_put_back_whatever_is_in_its_place(tmp_path: Path, there: str) -> None:
    link, target = tmp_path / "ffmpeg", tmp_path / "wanted"
    target.write_text("wanted")
    if there == "another link":
        (tmp_path / "other").write_text("other")
        link.symlink_to("other")
    elif there == "a broken link":
        link.symlink_to("nowhere")
    elif there == "a file":
        link.write_text("somebody's own")
    put_links({str(link): str(target)})
    assert link.is_symlink()
    assert link.read_text() == "wanted"
    kept = tmp_path / "ffmpeg.before-gpuprep"
    assert (kept.read_text() if kept.exists() else None) == ("somebody's own" if there == "a file" else None)
    assert not (tmp_path / "ffmpeg.new").exists()


def test_a_link_to_a_folder_is_moved_not_entered(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "current").symlink_to("old")
    assert put_links({str(tmp_path / "current"): "new"}) == 0
    assert (tmp_path / "current").readlink() == Path("new")
    assert list((tmp_path / "old").iterdir()) == []


def test_each_file_of_somebody_else_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    link, target = tmp_path / "a program's name", tmp_path / "wanted"
    target.write_text("wanted")
    taken = tmp_path / f"{link.name}.before-gpuprep.1"
    taken.symlink_to("nowhere")  # a broken link is somebody's, too
    for text in ("first", "second", "third"):
        link.unlink(missing_ok=True)
        link.write_text(text)
        assert put_links({str(link): str(target)}) == 0
        assert link.readlink() == target
    kept = {path.name.removeprefix(link.name): path.read_text() for path in tmp_path.glob("*before*") if path.exists()}
    assert kept == {
        ".before-gpuprep": "first",
        ".before-gpuprep.2": "second",
        ".before-gpuprep.3": "third",
    }
    assert taken.readlink() == Path("nowhere")


def test_a_folder_of_somebody_else_is_kept_beside_and_none_is_entered(tmp_path: Path) -> None:
    current, kept = tmp_path / "current", tmp_path / "current.before-gpuprep"
    for folder in (current, kept):
        folder.mkdir()
        (folder / "own").write_text(folder.name)
    assert put_links({str(current): "new", str(tmp_path / "other"): "new"}) == 0
    assert (current.readlink(), (tmp_path / "other").readlink()) == (Path("new"), Path("new"))
    assert [path.name for path in kept.iterdir()] == ["own"]
    assert (tmp_path / "current.before-gpuprep.1" / "own").read_text() == "current"


def test_what_cannot_be_kept_beside_stays_where_it_is(tmp_path: Path) -> None:
    """A stand-in for the mv that loses a race: with -n it may skip and succeed."""
    link, programs = tmp_path / "ffmpeg", tmp_path / "programs"
    link.write_text("somebody's own")
    programs.mkdir()
    (programs / "mv").write_text("#!/bin/sh\nexit 0\n")
    (programs / "mv").chmod(0o755)
    command = f"PATH={programs}:$PATH; {linking({str(link): 'wanted'})}"
    assert subprocess.run(["sh", "-c", command], check=False).returncode != 0
    assert link.read_text() == "somebody's own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ffmpeg", "programs"]


def test_a_folder_where_the_new_link_is_made_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "current.new").mkdir()
    assert put_links({str(tmp_path / "current"): "new"}) != 0
    assert list((tmp_path / "current.new").iterdir()) == []
    assert not (tmp_path / "current").exists()


def test_who_links_says_that_a_file_is_kept() -> None:
    for key in ("ffmpeg.path", "nv-codec-headers.version", "cudnn.library"):
        (planned,) = fixes.plan(WANTED, FINISHED, failed(key))
        assert "a file of somebody else there is kept beside it" in planned.what


def test_nothing_is_linked_to_a_build_that_is_not_whole() -> None:
    (command,) = commands("ffmpeg.path")
    assert command.startswith(f"/usr/local/bin/gpuprep-agent whole {WANTED.ffmpeg_directory} && ")
    assert "/usr/local/bin/ffprobe" in command
    (command,) = commands("cudnn.library")
    assert command.startswith(f"/usr/local/bin/gpuprep-agent whole {WANTED.cudnn_directory} && ")
    assert command.endswith(" && ldconfig")


def test_a_missing_reading_of_units_is_no_unit() -> None:
    snapshot = dataclasses.replace(FINISHED, units={}, gpus=records.Missing("driver_not_loaded"))
    assert fixes.plan(WANTED, snapshot, failed("gpu 0.clocks", "nvidia-persistenced.active")) == []
