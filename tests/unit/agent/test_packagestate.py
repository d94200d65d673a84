"""What the package manager left half done, who holds its locks, and what a plan says of both."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from builders import bare_snapshot, load
from fakeprograms import program
from places import CASES
from programfile import answer_of

from gpuprep import checks, errors, records
from gpuprep.agent.facts import packages, packagestate
from gpuprep.agent.programs import run as agent_run
from gpuprep.desired import state

DPKG = (CASES / "public/09-broken-dpkg/dpkg-query.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("answer", "rpm", "found"),
    [
        (DPKG, False, {"acme-agent": "half-configured"}),
        ("ii \tadduser\nhi \theld\nrc \tgone\nun \tnever\n", False, {}),
        ("iU \ta\niH \tb\niW \tc\nit \td\niiR\te\nrHR\tf\npF \tg\n", False, {
            "a": "unpacked", "b": "half-installed", "e": "reinst-required", "f": "reinst-required",
            "g": "half-configured",
        }),
        (
            "ii \ta\t\t, b (>= 1) | c, python3:any\nii \tb\t\t\nii \tpython3\tpy (= 3), vim\nii \td\t\tpy, c | vim, e\n"
            "rc \te\t\t\nrc \tf\t\tnothing\nii \tg\t\tlibnvidia-cfg1-580 (= 1)\n", False, {"d": "installed without e"},
        ),
        ("iF \ta\t\t\t2\t2\niF \tb\t\t\t2\t1\niF \tc\t\t\t2\t\niU \td\t\t\t2\t2\n", False, {
            "a": "half-configured by a trigger", "b": "half-configured", "c": "half-configured", "d": "unpacked",
        }),
        ("iF \t$(reboot)\niF\n\niF \t{{ x }}\niF \t" + "a" * 500, False, {}),
        ("bash.x86_64\nkernel-core.x86_64\nkernel-core.x86_64\ngpg-pubkey.(none)\ngpg-pubkey.(none)\n", True, {}),
        ("glibc.x86_64\nglibc.i686\nglibc.x86_64\n", True, {"glibc.x86_64": "installed twice"}),
        ("".join(f"iF \tp{n:04}\n" for n in range(9000)), False, {f"p{n:04}": "half-configured" for n in range(50)}),
    ],
    ids=["public case", "sound", "each state", "needs", "triggers", "names that are none", "kernels", "twice", "many"],
)  # fmt: skip
def test_what_is_half_done(answer: str, rpm: bool, found: dict[str, str]) -> None:
    assert packagestate.unfinished(answer, rpm=rpm) == found


def test_dpkgs_journal_is_files_of_digits_as_apt_looks_for_them(tmp_path: Path) -> None:
    assert packagestate.journal(tmp_path / "none") == []
    (tmp_path / "tmp.i").touch()
    assert packagestate.journal(tmp_path) == []
    (tmp_path / "0003").touch()
    assert packagestate.journal(tmp_path) == [str(tmp_path / "0003")]


def test_who_holds_a_lock_is_named_while_it_is_held(tmp_path: Path) -> None:
    lock, written = tmp_path / "lock-frontend", tmp_path / "metadata_lock.pid"
    places = ((str(lock), str(tmp_path / "none")), (str(written), str(tmp_path / "none")))
    lock.touch()
    written.write_text("")
    assert packagestate.holders(*places) == {}
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    holding = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        holder.stdout.readline()
        written.write_text(f"{holder.pid}\n")
        held = packagestate.holders(*places)
        holder.communicate("\n")
    assert list(held) == [str(lock), str(written)]
    assert all(f"(process {holder.pid})" in who for who in held.values())
    assert packagestate.sentence(held).endswith(f"(process {holder.pid}) works with the packages and holds {lock}")
    assert packagestate.holders(*places) == {}
    assert packagestate.sentence({}) == ""


def test_the_roles_have_it_as_a_module(tmp_path: Path) -> None:
    answer = answer_of("package_state")
    assert set(answer) >= {"unfinished", "journal", "holders", "others", "ours", "msg"}
    for name in ("dpkg-query", "rpm"):
        program(tmp_path / name, "exit 2")
    assert answer_of("package_state", {"PATH": str(tmp_path)})["msg"].endswith(
        "cannot read which packages are installed"
    )


def left(
    unfinished: dict[str, str] | None = None,
    journal: tuple[str, ...] = (),
    holders: dict[str, str] | records.Missing | None = None,
) -> records.PackageManagerFacts:
    return records.PackageManagerFacts(unfinished or {}, journal, {} if holders is None else holders)


UNREADABLE = records.Missing("no_permission", "lock-frontend")


@pytest.mark.parametrize(
    ("there", "says", "works"),
    [
        (left({"acme-agent": "half-configured"}), "acme-agent is half-configured", "`sudo apt-get purge acme-agent`"),
        (left({"a": "unpacked"}, holders=UNREADABLE), "a is unpacked", "`sudo dpkg --configure -a`"),
        (
            left({"nvidia-dkms-580": "half-configured"}),
            "nvidia-dkms-580 is half-",
            "`sudo mkdir -p /var/lib/dkms /usr/",
        ),
        (left({"a": "installed without e"}), "a is installed without e", "`sudo apt-get --fix-broken install`"),
        (left({"b": "reinst-required"}), "b is reinst-required", "`sudo apt-get install --reinstall b`"),
        (left({"c.x86_64": "installed twice"}), "c.x86_64 is installed twice", "`sudo dnf remove --duplicates`"),
        (left(journal=("/var/lib/dpkg/updates/0001",)), "(/var/lib/dpkg/updates/0001)", "`sudo dpkg --configure -a`"),
        (left({f"p{n:02}": "unpacked" for n in range(50)}), "p07 is unpacked and 42 more", "p07`"),
    ],
)
def test_packages_left_half_done_are_refused_before_anything_changes(
    there: records.PackageManagerFacts, says: str, works: str
) -> None:
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(load(), dataclasses.replace(bare_snapshot(), package_manager=there))
    (reason,) = refused.value.reasons
    assert reason.startswith("host.packages: ")
    assert says in reason
    assert works in reason.split("; works: ")[1]
    assert reason.endswith("then run again")
    judged = dataclasses.replace(bare_snapshot(), package_manager=there)
    assert state.resolve(load(), judged, judging=True).driver.version == "550"


def test_whoever_works_with_the_packages_is_waited_for_and_what_is_half_done_then_is_not_left_so() -> None:
    busy = left({"a": "unpacked"}, holders={"/var/lib/dpkg/lock-frontend": "unattended-upgr (process 812)"})
    said = state.resolve(load(), dataclasses.replace(bare_snapshot(), package_manager=busy)).decisions[-1]
    assert said.startswith("unattended-upgr (process 812) works with the packages now and holds /var/lib/dpkg/lock-fr")
    sound = state.resolve(load(), dataclasses.replace(bare_snapshot(), package_manager=left())).decisions
    assert said not in sound
    assert "works with the packages" not in "".join(sound)


# ---------------------------------------------------------------- what a step of gpuprep left

BEGUN = """Start-Date: 2026-11-28  12:14:04
Commandline: /usr/bin/apt-get -y -o DPkg::Lock::Timeout=600 -o GPUprep::Step=1 install nvidia-cuda-toolkit=12.4
Install: libnppitc12:amd64 (12.2.5.30, automatic), nvidia-cuda-toolkit:amd64 (12.4), g++-13:amd64 (13.3.0-16, automatic)
Upgrade: libcuda1:amd64 (535, 550)
"""
NAMES = ["g++-13", "libcuda1", "libnppitc12", "nvidia-cuda-toolkit"]
EARLIER = "Start-Date: 1\nCommandline: apt-get install vim\nInstall: vim:amd64 (9)\nEnd-Date: 1\n"


@pytest.mark.parametrize(
    ("history", "own"),
    [
        (f"\n{EARLIER}\n{BEGUN}", NAMES),
        (
            f"\n{BEGUN}Error: Sub-process /usr/bin/dpkg returned an error code (1)\nEnd-Date: 2026-11-28  12:15:21\n",
            NAMES,
        ),
        (f"\n{BEGUN}End-Date: 2026-11-28  12:15:21\n", []),
        (f"\n{BEGUN}\n{EARLIER}", []),  # somebody used apt since
        (f"\n{BEGUN.replace(' -o GPUprep::Step=1', '')}", []),  # somebody else's
        ("", []),
        ("\n\n" + "x" * 400000 + f"\n\n{BEGUN}", NAMES),
        (f"\nCommandline: x {packagestate.MARK}\nInstall: $(reboot), a:amd64 (1), ../b:amd64 (1)\n", ["a"]),
    ],
    ids=["cut", "failed", "ended", "used since", "another's", "empty", "long", "hostile"],
)
def test_what_apt_did_for_gpuprep_and_did_not_end(tmp_path: Path, history: str, own: list[str]) -> None:
    (tmp_path / "history.log").write_text(history)
    assert packagestate.ours(rpm=False, apt=tmp_path / "history.log") == own
    assert packagestate.ours(rpm=False, apt=tmp_path / "none") == []


@pytest.mark.parametrize(
    ("state", "comment", "own"),
    [
        (0, packagestate.MARK, ["cuda-nvcc-12-8.x86_64"]),
        (2, packagestate.MARK, ["cuda-nvcc-12-8.x86_64"]),
        (1, packagestate.MARK, []),
        (0, None, []),
        (0, "by hand", []),
    ],
)
def test_what_dnf_did_for_gpuprep_and_did_not_end(
    tmp_path: Path, state: int, comment: str | None, own: list[str]
) -> None:
    """The columns that are read, as libdnf's schema has them."""
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE trans (id INTEGER PRIMARY KEY, dt_end INTEGER, state INTEGER, comment TEXT);"
            "CREATE TABLE rpm (item_id INTEGER, name TEXT, arch TEXT);"
            "CREATE TABLE trans_item (id INTEGER PRIMARY KEY, trans_id INTEGER, item_id INTEGER);"
            "INSERT INTO trans VALUES (1, 2, 1, NULL);"
            "INSERT INTO rpm VALUES (7, 'cuda-nvcc-12-8', 'x86_64');"
            "INSERT INTO trans_item VALUES (1, 2, 7), (2, 2, 7);"
        )
        database.execute("INSERT INTO trans VALUES (2, NULL, ?, ?)", (state, comment))
    database.close()
    assert packagestate.ours(rpm=True, dnf=path) == own
    path.write_bytes(b"torn")
    assert packagestate.ours(rpm=True, dnf=path) == []


DNF = """for word; do
  case $word in
    --setopt=cachedir=*) cat "${word#*=*=}/baseos.solv"; : >"${word#*=*=}/metadata_lock.pid" ;;
    --setopt=logdir=*) mkdir -p "${word#*=*=}" && : >"${word#*=*=}/dnf.log" ;;
  esac
done"""


def test_a_question_to_dnf_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin/dnf", DNF)
    cache, redhat, temporary = (tmp_path / name for name in ("cache", "system-release", "temporary"))
    for folder in (cache, temporary):
        folder.mkdir()
    (cache / "baseos.solv").write_text("kernel-devel-0:5.14.0-611.el9.x86_64\n")
    redhat.touch()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(agent_run, "SEARCH_PATH", f"{tmp_path}/bin:{agent_run.SEARCH_PATH}")
    monkeypatch.setattr(packages, "RED_HAT", redhat)
    monkeypatch.setattr(packages, "DNF_CACHE", cache)
    assert packages.headers_available("5.14.0-611.el9.x86_64") is True
    assert packages.headers_available("5.14.0-570.el9.x86_64") is False
    assert [path.name for path in cache.iterdir()] == ["baseos.solv"]
    assert list(temporary.iterdir()) == []


APT = """case $* in *Dir::Cache::pkgcache=\\ *Dir::Cache::srcpkgcache=\\ *) ;; *) exit 1 ;; esac
echo 'linux-headers-6.12'; echo '  Candidate: 6.12.1'"""


def test_a_question_to_apt_writes_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "apt-cache", APT)
    program(tmp_path / "dpkg-query", "true")
    (tmp_path / "debian_Packages").touch()
    monkeypatch.setattr(agent_run, "SEARCH_PATH", f"{tmp_path}:{agent_run.SEARCH_PATH}")
    monkeypatch.setattr(packages, "RED_HAT", tmp_path / "none")
    monkeypatch.setattr(packages, "APT_LISTS", tmp_path)
    assert packages.headers_available("6.12") is True


@pytest.mark.parametrize(
    ("unfinished", "journal", "ours", "names"),
    [
        ({"nvidia-cuda-toolkit": "unpacked"}, (), ("g++-13", "nvidia-cuda-toolkit"), ""),
        ({}, ("/var/lib/dpkg/updates/0001",), ("nvidia-cuda-toolkit",), ""),
        # libc-bin's trigger ran for the packages of that step, which does not name it
        ({"libc-bin": "half-configured by a trigger"}, ("/var/lib/dpkg/updates/0001",), ("libcuda1",), ""),
        ({"libc-bin": "half-configured by a trigger"}, (), (), "libc-bin is half-configured by a trigger"),
        ({"acme": "half-configured", "libcuda1": "unpacked"}, (), ("libcuda1",), "acme is half-configured"),
        ({"acme": "half-configured"}, ("/var/lib/dpkg/updates/0001",), ("libcuda1",), "acme is half-configured"),
        ({}, ("/var/lib/dpkg/updates/0001",), (), "/var/lib/dpkg/updates/0001"),
    ],
)
def test_what_gpuprep_left_half_done_it_completes_and_what_others_left_it_names(
    unfinished: dict[str, str], journal: tuple[str, ...], ours: tuple[str, ...], names: str
) -> None:
    there = dataclasses.replace(left(unfinished, journal=journal), ours=ours)
    host = dataclasses.replace(bare_snapshot(), package_manager=there)
    wanted = state.resolve(load(), host, judging=True)
    (finding,) = [one for one in checks.compare(wanted, host) if one.key == "packages.finished"]
    assert finding.status is records.Status.FAIL
    assert bool(finding.role) is not bool(names)  # provision has a step for its own
    assert names in finding.reason
    if not names:
        state.resolve(load(), host)
        return
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(load(), host)
    assert names in "".join(refused.value.reasons)
    assert "libcuda1 is" not in "".join(refused.value.reasons)
