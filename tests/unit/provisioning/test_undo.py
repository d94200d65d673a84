"""What unprovision takes back: the state of before × the state of now ─► the list."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from places import COLLECTION

from gpuprep.errors import HostError
from gpuprep.provisioning.undo import Undo, Work, refused, undo
from gpuprep.records.recorded_options import STEPS

ROOT = {"mode": 0o644, "uid": 0, "gid": 0}
NOUVEAU, PIN, AGENT = (
    "/etc/modprobe.d/gpuprep-nouveau.conf",
    "/etc/apt/preferences.d/gpuprep-nvidia",
    "/opt/gpuprep/agent/0.1.0-3e7e20bf6d73",
)
HOLDS, ENVIRONMENT = "/etc/apt/apt.conf.d/52gpuprep-holds", "/etc/environment"
GPU = "GPU-12345678-1234-1234-1234-123456789012"


def file(text: str) -> dict[str, Any]:
    return {"kind": "file", "text": base64.b64encode(text.encode()).decode(), **ROOT}


def blocks(**held: str) -> str:
    titles = {"driver": "the driver packages", "cuda": "the CUDA toolkit"}
    return "".join(
        f"// BEGIN gpuprep: {titles[step]}\nUnattended-Upgrade::Package-Blacklist {{\n"
        + "".join(f'  "^{name}$";\n' for name in names.split())
        + f"}};\n// END gpuprep: {titles[step]}\n"
        for step, names in held.items()
    )


def machine(**changed: Any) -> dict[str, Any]:
    bare: dict[str, Any] = {
        "schema_version": 1, "written_at": "2026-11-29T10:00:00+00:00", "manager": "apt",
        "packages": {"libc6": ["2.41"], "bash": ["5.2"]}, "residual": [], "auto": ["libc6"], "holds": [], "keys": {},
        "files": {ENVIRONMENT: file("LANG=C\n")}, "folders": ["/etc", "/etc/modprobe.d", "/usr/local/bin"], "units": {},
        "accounts": {"users": [], "groups": []}, "gpus": {}, "kernel": "quiet",
    }  # fmt: skip
    return {**bare, **changed}


def ours(step: str, *, auto: bool = False) -> dict[str, Any]:
    return {"ours": True, "step": step, "auto": auto}


STEP_OF_PATH = {NOUVEAU: "driver", PIN: "driver", AGENT: "agent", HOLDS: "", ENVIRONMENT: "cuda"}


def state(now: dict[str, Any], before: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A provisioned Debian; `before` {} is the bare machine, None is a machine without a ledger."""
    empty: dict[str, Any] = {
        "before": machine() if before == {} else before, "broken_ledger": False, "now": now, "installed": {},
        "changed": {}, "since": "", "needs": {}, "trees": {}, "unrecorded": [], "members": {},
        "driver_loaded": False, "driver_on_disk": False,
        "steps": {path: STEP_OF_PATH.get(path, "") for path in now["files"]},
    }  # fmt: skip
    return {**empty, **more}


def provisioned(**changed: Any) -> dict[str, Any]:
    packages = {
        "libc6": ["2.41"],
        "bash": ["5.2"],
        "nvidia-driver": ["550"],
        "gcc": ["14"],
        "cpp": ["14"],
        "nvcc": ["12"],
    }
    whole: dict[str, Any] = {
        "packages": packages, "auto": ["libc6", "cpp"], "holds": ["nvidia-driver"],
        "files": {NOUVEAU: file("blacklist nouveau\n"), PIN: file("Pin"), AGENT: {"kind": "folder", **ROOT},
                  HOLDS: file(blocks(driver="nvidia-driver", cuda="nvcc")), ENVIRONMENT: file("LANG=C\n")},
    }  # fmt: skip
    return machine(**{**whole, **changed})


INSTALLED = {
    "nvidia-driver": ours("driver"), "gcc": ours("driver"), "cpp": ours("driver", auto=True), "nvcc": ours("cuda"),
}  # fmt: skip


def work(listed: Undo, step: str) -> Work:
    return next((one for one in listed.works if one.step == step), Work(step))


def paths(one: Work, kind: str = "absent") -> list[str]:
    return [about["path"] for about in one.files if about["kind"] == kind]


def written(listed: Undo, step: str, path: str) -> str:
    (about,) = [about for about in work(listed, step).files if about["path"] == path]
    return base64.b64decode(about["text"]).decode()


def test_a_bare_machine_has_nothing_to_take_back() -> None:
    listed = undo(state(machine(), {}))
    assert (listed.works, listed.kept, listed.unknown) == ((), (), ())
    assert listed.plan("t4").steps == ()


def test_what_gpuprep_installed_goes_with_its_files_last_step_first() -> None:
    listed = undo(state(provisioned(), {}, installed=INSTALLED, driver_loaded=True))
    assert work(listed, "driver").remove == ["cpp", "gcc", "nvidia-driver"]
    assert work(listed, "cuda").remove == ["nvcc"]
    assert paths(work(listed, "driver")) == [PIN, NOUVEAU]
    assert paths(work(listed, "agent")) == [AGENT]
    assert paths(work(listed, "")) == [HOLDS]
    assert [one.step for one in listed.works] == ["cuda", "agent", "driver", ""]
    assert (listed.restarts, listed.driver_before) == (True, False)
    assert [step.may_reboot for step in listed.plan("t4").steps] == [False, False, True, False]


def test_what_was_there_before_stays_whoever_installed_it() -> None:
    before = machine(packages={"libc6": ["2.41"], "bash": ["5.2"], "gcc": ["14"]})
    listed = undo(state(provisioned(), before, installed=INSTALLED))
    assert "gcc" not in work(listed, "driver").remove


def test_what_the_user_installed_stays_with_what_it_needs() -> None:
    now = provisioned()
    now["packages"]["mytool"] = ["1"]
    needs = {"mytool": [["gcc"]], "gcc": [["cpp"], ["libc6"]]}
    listed = undo(state(now, {}, installed=INSTALLED, needs=needs))
    assert work(listed, "driver").remove == ["nvidia-driver"]
    assert listed.kept == ("kept gcc, since mytool needs it", "kept cpp, since gcc needs it")


def test_another_choice_of_a_dependency_is_enough() -> None:
    now = provisioned()
    now["packages"] |= {"mytool": ["1"], "clang": ["19"]}
    listed = undo(state(now, {}, installed=INSTALLED, needs={"mytool": [["clang", "gcc"]]}))
    assert "gcc" in work(listed, "driver").remove


def test_an_automatic_package_that_somebody_marked_stays() -> None:
    listed = undo(state(provisioned(auto=["libc6"]), {}, installed=INSTALLED))
    assert "cpp" not in work(listed, "driver").remove
    assert listed.kept == ("kept cpp: somebody marked it as installed by hand since then",)


@pytest.mark.parametrize("step", STEPS)
def test_only_takes_that_step_alone(step: str) -> None:
    listed = undo(state(provisioned(), {}, installed=INSTALLED), [step])
    assert not listed.whole
    assert {one.step for one in listed.works} <= {step}


def test_only_driver_takes_its_own_block_out_of_the_holds() -> None:
    listed = undo(state(provisioned(), {}, installed=INSTALLED), ["driver"])
    assert written(listed, "driver", HOLDS) == blocks(cuda="nvcc")


def test_a_hold_of_a_package_that_stays_is_released_unless_it_was_there_before() -> None:
    now = provisioned(holds=["nvidia-driver", "libc6", "bash"])
    now["files"][HOLDS] = file(blocks(driver="nvidia-driver libc6 bash"))
    before = machine(holds=["bash"])
    assert work(undo(state(now, before, installed=INSTALLED)), "driver").unhold == ["libc6"]


def test_a_package_that_was_changed_or_removed_comes_back_in_its_version() -> None:
    before = machine(packages={"libc6": ["2.41"], "bash": ["5.2"], "nvidia-driver": ["535"], "libnvidia-old": ["535"]})
    changed = {"nvidia-driver": "driver", "libnvidia-old": "driver", "bash": "driver"}
    listed = undo(state(provisioned(), before, installed={}, changed=changed))
    assert work(listed, "driver").restore == {"nvidia-driver": "535", "libnvidia-old": "535"}


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        ("LANG=C\n", 'LANG=C\nPATH="/usr/bin:/bin:/usr/local/cuda/bin"\nCUDA_HOME="/usr/local/cuda"\n', "LANG=C\n"),
        ('PATH="/bin"\n', 'PATH="/bin:/usr/local/bin:/usr/local/cuda/bin"\nCUDA_HOME="/usr"\n', 'PATH="/bin"\n'),
        ("", 'PATH="/usr/bin:/usr/local/cuda/bin"\nCUDA_HOME="/usr"\nMINE=1\n', "MINE=1\n"),
        ('PATH="/bin"\n', 'PATH="/bin:/usr/local/cuda/bin:/mine"\nCUDA_HOME="/usr"\n', 'PATH="/bin:/mine"\n'),
        ('CUDA_HOME="/my"\n', 'CUDA_HOME="/usr/local/cuda"\nPATH="/bin:/usr/local/cuda/bin"\n', 'CUDA_HOME="/my"\n'),
    ],
)  # fmt: skip
def test_the_environment_loses_what_gpuprep_added(before: str, now: str, after: str) -> None:
    there = provisioned()
    there["files"][ENVIRONMENT] = file(now)
    listed = undo(state(there, machine(files={ENVIRONMENT: file(before)}), installed=INSTALLED))
    assert written(listed, "cuda", ENVIRONMENT) == after


def test_an_environment_that_was_not_there_goes() -> None:
    there = provisioned()
    there["files"][ENVIRONMENT] = file('PATH="/usr/bin:/usr/local/cuda/bin"\nCUDA_HOME="/usr"\n')
    listed = undo(state(there, machine(files={}), installed=INSTALLED))
    assert ENVIRONMENT in paths(work(listed, "cuda"))


def test_the_users_own_ffmpeg_is_left_where_it_is() -> None:
    theirs = {"kind": "file", "sha256": "0" * 64, **ROOT}
    now = machine(files={"/usr/local/bin/ffmpeg": theirs})
    steps = {"/usr/local/bin/ffmpeg": "codec"}
    assert undo(state(now, machine(files=now["files"]), steps=steps)).works == ()
    assert undo(state(now, None, steps=steps)).works == ()


@pytest.mark.parametrize("before", [machine(files={}), None])
def test_gpupreps_own_ffmpeg_goes_with_its_folder(before: dict[str, Any] | None) -> None:
    path = "/opt/gpuprep/ffmpeg/7.1.5-de203c64332a"
    now = machine(files={path: {"kind": "folder", **ROOT}})
    assert paths(work(undo(state(now, before, steps={path: "codec"})), "codec")) == [path]


TOOLKIT = {"nvidia-container-toolkit": ours("containers")}


@pytest.mark.parametrize("before", [{"log-driver": "journald"}, {}, None])
def test_dockers_settings_lose_the_runtime_alone(before: dict[str, Any] | None) -> None:
    path = "/etc/docker/daemon.json"
    later = {**(before or {}), "mtu": 1400}
    now = machine(files={path: file(json.dumps({**later, "runtimes": {"nvidia": {"path": "x"}}}))})
    bare = machine(files={} if before is None else {path: file(json.dumps(before))})
    listed = undo(state(now, bare, steps={path: "containers"}, installed=TOOLKIT))
    assert json.loads(written(listed, "containers", path)) == later
    assert undo(state(now, bare, steps={path: "containers"})).works == ()  # gpuprep installed no toolkit


def test_settings_with_nothing_but_the_runtime_go() -> None:
    path = "/etc/docker/daemon.json"
    now = machine(files={path: file(json.dumps({"runtimes": {"nvidia": {"path": "x"}}}))})
    listed = undo(state(now, machine(files={}), steps={path: "containers"}, installed=TOOLKIT))
    assert paths(work(listed, "containers")) == [path]


@pytest.mark.parametrize(("more", "stays"), [("", False), ("root = '/data'\n", True)])
def test_settings_that_the_user_changed_too_are_left_to_the_user(more: str, stays: bool) -> None:
    path, old = "/etc/containerd/config.toml", "version = 2\n"
    new = old + more + "[plugins.nvidia]\n  runtime_type = 'x'\n  BinaryName = '/usr/bin/nvidia-container-runtime'\n"
    bare = machine(files={path: file(old)})
    listed = undo(state(machine(files={path: file(new)}), bare, steps={path: "containers"}, installed=TOOLKIT))
    assert bool(listed.works) is not stays
    assert bool(listed.kept) is stays


# ---------------------------------------------------------------- what the user did since then


def test_a_package_that_the_user_holds_stays() -> None:
    listed = undo(state(provisioned(holds=["nvidia-driver", "gcc"]), {}, installed=INSTALLED))
    assert work(listed, "driver").remove == ["cpp", "nvidia-driver"]
    assert listed.kept == ("kept gcc: somebody holds it",)


@pytest.mark.parametrize(
    ("path", "step", "about"),
    [
        ("/usr/local/bin/ffmpeg", "codec", {"kind": "file", "sha256": "0" * 64, **ROOT}),
        ("/usr/local/bin/ffmpeg", "codec", {"kind": "link", "target": "/home/me/ffmpeg", **ROOT}),
        ("/usr/local/cuda", "cuda", {"kind": "folder", **ROOT}),
        ("/usr/local/cuda", "cuda", {"kind": "link", "target": "/usr/local/cuda-13.0", **ROOT}),
        ("/etc/cdi/nvidia.json", "containers", file("{}")),
    ],
)  # fmt: skip
def test_what_the_user_put_in_its_place_stays(path: str, step: str, about: dict[str, Any]) -> None:
    assert undo(state(machine(files={path: about}), machine(files={}), steps={path: step})).works == ()


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/usr/local/bin/ffmpeg", "/home/me/ffmpeg/current/bin/ffmpeg"),
        ("/usr/local/lib/pkgconfig/ffnvcodec.pc", "/home/me/nv-codec-headers/lib/pkgconfig/ffnvcodec.pc"),
    ],
)
def test_a_link_that_the_user_turned_to_a_place_of_the_same_name_stays(path: str, target: str) -> None:
    now = machine(files={path: {"kind": "link", "target": target, **ROOT}})
    listed = undo(state(now, machine(files={}), steps={path: "codec"}))
    assert listed.works == ()
    assert listed.kept == (f"kept {path}: it is not the one that gpuprep made",)


def test_builds_below_a_prefix_of_the_user_go_before_what_leads_to_them() -> None:
    link, build = "/usr/local/bin/ffmpeg", "/data/gpuprep/ffmpeg/7.1.5-de203c64332a"
    current = "/data/gpuprep/ffmpeg/current"
    now = machine(files={link: {"kind": "link", "target": f"{current}/bin/ffmpeg", **ROOT}})
    whole = state(now, machine(files={}), steps={link: "codec"})
    trees: dict[str, dict[str, str]] = {build: {"step": "codec"}, current: {"step": "codec"}}
    assert paths(work(undo({**whole, "trees": trees}), "codec")) == [build, current, link]
    assert paths(work(undo({**whole, "trees": {link: {"step": "codec"}}}), "codec")) == [link]


def test_a_folder_of_gpuprep_with_a_file_of_somebody_stays() -> None:
    own, other = "/opt/gpuprep/ffmpeg/7.1.5-de203c64332a", "/data/gpuprep/ffmpeg/7.1.5-de203c64332a"
    now = machine(files={own: {"kind": "folder", "stranger": "bin/mine", **ROOT}})
    trees = {other: {"step": "codec", "stranger": "share/mine"}}
    listed = undo(state(now, machine(files={}), steps={own: "codec"}, trees=trees))
    assert listed.works == ()
    assert listed.kept == (
        f"kept {other}: it has share/mine, which is not gpuprep's",
        f"kept {own}: it has bin/mine, which is not gpuprep's",
    )


def test_a_group_with_somebody_in_it_stays() -> None:
    now = machine(accounts={"users": ["gpuprep-build"], "groups": ["gpuprep-build", "nvpd"]})
    listed = undo(state(now, {}, members={"gpuprep-build": ["alice"], "nvpd": []}))
    assert [(one.users, one.groups) for one in listed.works] == [(["gpuprep-build"], []), ([], ["nvpd"])]
    assert listed.kept == ("kept the group gpuprep-build: alice is in it",)


def test_packages_of_which_the_history_is_lost_are_named() -> None:
    """/var/log/apt keeps a year."""
    listed = undo(state(provisioned(), {}, installed={}, unrecorded=["gcc", "nvidia-driver"]))
    assert not any(one.remove for one in listed.works)
    assert [said for said in listed.unknown if said.startswith("who installed gcc, nvidia-driver: ")]


def test_the_text_of_what_goes_is_told_with_what_somebody_wrote_into_it() -> None:
    now = provisioned()
    now["files"][NOUVEAU] = file("blacklist nouveau\noptions mine x=1\n")
    listed = undo(state(now, {}, installed=INSTALLED))
    assert sorted(listed.texts) == [HOLDS, PIN, NOUVEAU]
    assert listed.texts[NOUVEAU] == "blacklist nouveau\noptions mine x=1\n"


def test_dkms_of_the_user_keeps_its_tree() -> None:
    path = "/var/lib/dkms"
    now = machine(files={path: {"kind": "folder", **ROOT}}, packages={"dkms": ["3"]})
    mine = state(now, machine(files={}), steps={path: "driver"})
    assert undo(mine).works == ()
    listed = undo({**mine, "installed": {"dkms": ours("driver")}})
    assert paths(work(listed, "driver")) == [path]


def test_a_driver_that_was_there_keeps_its_options_until_a_restart() -> None:
    path = "/etc/modprobe.d/gpuprep-nvidia.conf"
    packages = {"nvidia-driver": ["550"]}
    now = machine(packages=packages, files={path: file("options nvidia x=1")})
    listed = undo(
        state(now, machine(packages=packages), steps={path: "driver"}, driver_loaded=True, driver_on_disk=True)
    )
    assert (work(listed, "driver").remove, listed.restarts) == ([], False)
    worked = machine(packages=packages, gpus={GPU: {}})
    assert undo(state(now, worked)).driver_before
    assert "until the machine is restarted" in listed.kept[0]


# ---------------------------------------------------------------- without a ledger


def test_without_a_ledger_gpupreps_own_goes_and_the_rest_is_named() -> None:
    now = provisioned(accounts={"users": ["gpuprep-build", "nvpd"], "groups": ["gpuprep-build", "nvpd"]})
    listed = undo(state(now, None, installed=INSTALLED, since="2026-01-02 03:04:05"))
    assert work(listed, "driver").remove == ["cpp", "gcc", "nvidia-driver"]
    assert work(listed, "codec").users == ["gpuprep-build"]
    assert [said for said in listed.unknown if "older gpuprep" in said and "2026-01-02" in said]
    assert [said for said in listed.unknown if "nvpd" in said]
    assert any(note.startswith("cannot be known: ") for note in listed.plan("t4").notes)


def test_of_a_machine_that_was_unprovisioned_nothing_is_said() -> None:
    listed = undo(state(machine(), None, installed=INSTALLED, since="2026-01-02"))
    assert (listed.works, listed.kept, listed.unknown) == ((), (), ())


def test_what_an_unprovision_put_back_is_not_taken_by_the_next() -> None:
    """The first one took the ledger; what it reinstalled is the user's driver, installed by a step of gpuprep's."""
    back = {"nvidia-driver": ours("before"), "gcc": ours("driver")}
    now = provisioned()
    assert work(undo(state(now, None, installed=back)), "driver").remove == ["gcc"]
    assert work(undo(state(now, {}, installed=back)), "driver").remove == ["gcc", "nvidia-driver"]


def test_a_ledger_that_is_damaged_is_said() -> None:
    assert "damaged" in undo(state(provisioned(), None, broken_ledger=True)).unknown[0]


# ---------------------------------------------------------------- settings


def test_gpus_get_their_own_power_or_what_they_had() -> None:
    gpu = {"persistence_mode": "Enabled", "power.limit": "60.00", "power.default_limit": "70.00",
           "compute_mode": "Exclusive_Process", "ecc.mode.pending": "Enabled"}  # fmt: skip
    now = machine(gpus={GPU: gpu}, files={"/etc/gpuprep/tuning.json": file("{}")})
    steps = {"/etc/gpuprep/tuning.json": "tuning"}
    bare = undo(state(now, {}, steps=steps))
    assert work(bare, "tuning").settings == [
        ["-i", GPU, *words] for words in (["-rgc"], ["-rac"], ["-pl", "70.00"], ["-c", "0"], ["-pm", "0"])
    ]
    had = {**gpu, "power.limit": "65.00", "ecc.mode.pending": "Disabled"}
    words = work(undo(state(now, machine(gpus={GPU: had}), steps=steps)), "tuning").settings
    assert [word[2:] for word in words][2:] == [["-pl", "65.00"], ["-c", "3"], ["-e", "0"], ["-pm", "1"]]


def test_a_gpu_that_gpuprep_cut_becomes_whole_and_one_that_was_cut_before_stays() -> None:
    gpu = {"persistence_mode": "Enabled", "power.limit": "400.00", "power.default_limit": "400.00",
           "compute_mode": "Default", "ecc.mode.pending": "Enabled", "mig.mode.pending": "Enabled"}  # fmt: skip
    path = "/etc/gpuprep/tuning.json"
    now = machine(gpus={GPU: gpu}, files={path: file("{}")})
    listed = undo(state(now, machine(gpus={GPU: {**gpu, "mig.mode.pending": "Disabled"}}), steps={path: "tuning"}))
    words = work(listed, "tuning").settings
    assert words[:2] == [["mig", "-i", GPU, "-dci"], ["mig", "-i", GPU, "-dgi"]]
    assert words[-1] == ["-i", GPU, "-mig", "0"]
    assert refused(listed, {GPU: gpu}) == [f"{GPU}: MIG is still on: end the programs that use its instances"]
    assert refused(listed, {GPU: {**gpu, "mig.mode.pending": "Disabled"}}) == []
    cut = undo(state(now, machine(gpus={GPU: gpu}), steps={path: "tuning"}))
    assert not [words for words in work(cut, "tuning").settings if "mig" in words[0] or "-mig" in words]
    assert f"how {GPU} was cut by MIG before gpuprep: it stays as it is" in cut.unknown


def test_a_gpu_that_keeps_another_power_limit_is_named() -> None:
    gpu = {"persistence_mode": "Enabled", "power.limit": "60.00", "power.default_limit": "70.00",
           "compute_mode": "Default", "ecc.mode.pending": "[N/A]"}  # fmt: skip
    path = "/etc/gpuprep/tuning.json"
    listed = undo(state(machine(gpus={GPU: gpu}, files={path: file("{}")}), {}, steps={path: "tuning"}))
    assert refused(listed, {GPU: {**gpu, "power.limit": "70.00"}}) == []
    assert refused(listed, {}) == []
    assert refused(listed, {GPU: gpu}) == [f"{GPU}: its power limit is 60.00 W, not 70.00 W"]


def test_a_unit_that_has_gpupreps_name_and_is_the_users_stays() -> None:
    now = machine(units={"gpuprep-first-boot.service": "enabled", "gpuprep-tune.service": "enabled"})
    assert [one.units for one in undo(state(now, {})).works] == [["gpuprep-tune.service"]]


def test_keys_that_others_imported_stay() -> None:
    """Whose a key is, gpuprep's own file of it says; another of NVIDIA's is the user's."""
    own = (COLLECTION / "roles/gpu_containers/files/container-toolkit-key.asc").read_text()
    keys = {"gpg-pubkey-d42d0685-62589a51": "cudatools <cudatools@nvidia.com>", "gpg-pubkey-00000001-00000001": "me",
            "gpg-pubkey-f796ecb0-59cd5831": "libnvidia-container", "gpg-pubkey-3228467c-613798eb": "epel9"}  # fmt: skip
    path = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprep-container-toolkit"
    now = machine(manager="dnf", keys=keys, packages={"epel-release.noarch": ["9"]}, files={path: file(own)})
    more = {"steps": {path: "containers"}, "installed": {"epel-release.noarch": ours("driver")}}
    listed = undo(state(now, {}, **more))
    assert work(listed, "containers").rpm_keys == ["gpg-pubkey-f796ecb0-59cd5831"]
    assert work(listed, "driver").rpm_keys == ["gpg-pubkey-3228467c-613798eb"]
    assert len([one for one in listed.kept if "nobody wrote down" in one]) == 2
    damaged = {**now, "files": {path: file(own[:300])}}
    assert "containers" not in {one.step for one in undo(state(damaged, {}, **more)).works if one.rpm_keys}


def test_an_older_driver_comes_back_with_its_hold_and_its_marks() -> None:
    """apt ends the hold of what it changes, and marks as installed by hand what it is told to install."""
    old = {"nvidia-utils": ["580.1"], "nvidia-dkms": ["580.1"], "nvidia-common": ["580.1"]}
    had = machine(packages=old, holds=["nvidia-utils"], auto=["nvidia-dkms"])
    changed = {name: "driver" for name in old}
    now = machine(packages={name: ["580.9"] for name in old}, holds=["nvidia-utils"], auto=["nvidia-dkms"])
    first = work(undo(state(now, had, changed=changed)), "driver")
    assert (set(first.restore), first.hold, first.auto) == (set(old), ["nvidia-utils"], ["nvidia-dkms"])
    second = work(undo(state({**had, "holds": [], "auto": []}, had, changed=changed)), "driver")
    assert (second.restore, second.hold, second.auto) == ({}, ["nvidia-utils"], ["nvidia-dkms"])
    killed = {name: ours("driver") for name in old}
    assert undo(state({**had, "auto": []}, had, installed=killed)).works[0].auto == ["nvidia-dkms"]
    assert undo(state(had, had, changed=changed)).works == ()


LOCKS = "/etc/dnf/plugins/versionlock.list"
LOCK = "# Added lock on Sun Nov 29\ncuda-nvcc-12-8-0:12.8.93-1.*\n"


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (None, f"\n{LOCK}", None),
        ("# mine\nvim-2:9.0-1.*\n", f"# mine\nvim-2:9.0-1.*\n\n{LOCK}", "# mine\nvim-2:9.0-1.*\n"),
    ],
)
def test_dnfs_locks_of_gpuprep_go_and_those_of_the_user_stay(before: str | None, now: str, after: str | None) -> None:
    there = machine(manager="dnf", files={LOCKS: file(now)}, packages={"cuda-nvcc-12-8.x86_64": ["0:12.8.93-1"]})
    bare = machine(files={} if before is None else {LOCKS: file(before)})
    installed = {"cuda-nvcc-12-8.x86_64": ours("cuda")}
    listed = undo(state(there, bare, installed=installed, steps={LOCKS: "driver"}))
    if after is None:
        assert paths(work(listed, "driver")) == [LOCKS, f"{LOCKS}.rpmsave"]
    else:
        assert written(listed, "driver", LOCKS) == after


def test_the_plugin_stays_for_the_users_own_locks() -> None:
    plugin = "python3-dnf-plugin-versionlock.noarch"
    there = machine(manager="dnf", files={LOCKS: file(f"{LOCK}vim-2:9.0-1.*\n")}, packages={plugin: ["4"]})
    listed = undo(state(there, machine(files={}), installed={plugin: ours("driver")}, steps={LOCKS: "driver"}))
    assert work(listed, "driver").remove == []
    assert written(listed, "driver", LOCKS).endswith("\nvim-2:9.0-1.*\n")
    assert "cuda" not in written(listed, "driver", LOCKS)


# ---------------------------------------------------------------- hostile answers


@pytest.mark.parametrize("name", ["-o", "a b", "x;reboot", "../x", "a" * 500, "{{ 1 }}"])
def test_a_name_that_is_no_package_is_never_removed(name: str) -> None:
    now = machine(packages={name: ["1"]})
    assert undo(state(now, {}, installed={name: ours("driver")})).works == ()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/", "/etc/modprobe.d/../passwd", "/etc/modprobe.d/gpuprep-/x.conf", ""]
)
def test_a_path_of_no_table_is_never_touched(path: str) -> None:
    now = machine(files={path: file("x")})
    assert undo(state(now, {}, steps={path: "driver"})).works == ()
    assert undo(state(machine(), machine(files={path: file("x")}))).works == ()


def test_an_answer_of_another_form_is_refused_whatever_is_missing() -> None:
    whole = state(provisioned(), {}, installed=INSTALLED)
    for part in ("now", "before"):
        for key in whole[part]:
            values: list[Any] = [None, 3, "x", [[]]]
            for value in values:
                broken = copy.deepcopy(whole)
                broken[part][key] = value
                try:
                    undo(broken)
                except HostError:
                    continue
