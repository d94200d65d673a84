"""Readings of the machine on real files: folders made like /sys, /boot and /run, manifests, programs that fail."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import agentreadings
import fakeprograms
import pytest
from probereportsfortests import measure

from gpuprep import records
from gpuprep.agent import __main__ as agent
from gpuprep.agent.facts import configlines, managed, osfacts, packages, shells
from gpuprep.agent.facts import loader as loaders
from gpuprep.agent.facts.manifest import is_intact, read_manifest
from gpuprep.agent.programs import run as agent_run
from gpuprep.agent.programs.run import run


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- commands


def test_a_command_and_the_ways_it_fails(tmp_path: Path) -> None:
    assert run(["echo", "hello"]) == "hello\n"
    assert run(["no-such-command"]) == records.Missing("command_not_found", "no-such-command")
    failing = script(tmp_path / "failing", "echo first >&2; echo the cause >&2; exit 3")
    assert run([str(failing)]) == records.Missing("command_failed", f"{failing}: the cause")
    assert run([str(failing)], accept=(3,)) == ""
    slow = run(["sleep", "3600"], timeout=0.2)
    assert isinstance(slow, records.Missing)
    assert "longer than 0.2 s" in slow.detail


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert agent_run.read_text(tmp_path / "nothing") is None
    assert isinstance(agent_run.read_text(tmp_path), records.Missing)


# ---------------------------------------------------------------- the machine


def pci_device(folder: Path, address: str, vendor: str, device: str, kind: str, driver_name: str = "") -> None:
    place = folder / address
    place.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
        (place / name).write_text(f"0x{value}\n")
    if driver_name:
        (place / "driver").symlink_to(f"../../bus/pci/drivers/{driver_name}")


def test_gpus_and_switches_of_the_bus(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:00:1f.0", "8086", "1237", "060000")
    pci_device(tmp_path, "0000:05:00.0", "10de", "20B0", "030200", "nouveau")
    pci_device(tmp_path, "0000:04:00.0", "10de", "1eb8", "030000")
    pci_device(tmp_path, "0000:06:00.0", "10de", "1aef", "040300")  # a GPU's own sound device
    pci_device(tmp_path, "0000:07:00.0", "10de", "1af1", "068000")
    gpus, switches, _others = osfacts.pci(tmp_path, names=())
    assert [(gpu.address, gpu.device_id, gpu.class_code, gpu.driver) for gpu in gpus] == [
        ("0000:04:00.0", "1eb8", "030000", None),
        ("0000:05:00.0", "20b0", "030200", "nouveau"),
    ]
    assert switches == 1
    assert osfacts.pci(tmp_path / "nothing") == ((), 0, ())


def test_cloud_init_by_its_status_files(tmp_path: Path) -> None:
    folder = tmp_path / "cloud-init"
    folder.mkdir()
    assert osfacts.cloud_init(folder) == "running"
    result = folder / "result.json"
    result.write_text(json.dumps({"v1": {"datasource": "x", "errors": []}}))
    assert osfacts.cloud_init(folder) == "done"
    result.write_text(json.dumps({"v1": {"errors": ["boom"]}}))
    assert osfacts.cloud_init(folder) == "error"
    result.write_text("{")
    assert isinstance(osfacts.cloud_init(folder), records.Missing)
    (folder / "disabled").touch()
    assert osfacts.cloud_init(folder) == "absent"


def test_the_loader_knows_the_c_library() -> None:
    loader = loaders.Loader()
    found = loader.find("libc.so.6")
    assert isinstance(found, str)
    assert Path(found).is_file()
    assert not Path(found).is_symlink()
    assert loader.find("libnone.so.1") is None
    newest = loader.find_newest("libc.so")
    assert newest == found


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01", "550.163.01"),
        ("/usr/lib64/libnvidia-ml.so.455.28", "455.28"),
        (None, None),
    ],
)
def test_the_version_in_the_name_of_the_library(path: str | None, version: str | None) -> None:
    assert agentreadings.driver_library_version(path) == version


def test_a_module_is_read_once_and_again_when_it_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, cache = tmp_path / "nvidia.ko.xz", tmp_path / "state" / "modules.json"
    module.write_text("550")
    reads: list[str] = []

    def read(path: Path) -> tuple[str, str, str] | records.Missing:
        reads.append(path.read_text())
        return records.Missing("unparsable") if reads[-1] == "" else (reads[-1], "open", "6.1")

    def look(agent: Path = tmp_path) -> tuple[str, str, str] | records.Missing:
        return agentreadings.module_version(module, read, cache, agent)

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert look() == ("550", "open", "6.1")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert look(tmp_path / "no agent") == ("550", "open", "6.1")
    assert not cache.parent.exists()  # neither an ordinary user nor a streamed agent leaves anything
    for _ in range(2):
        assert look() == ("550", "open", "6.1")
    assert len(reads) == 3
    assert cache.stat().st_mode & 0o777 == 0o644
    cache.parent.chmod(0o700)
    module.unlink()
    module.write_text("555")  # as long as the old one
    assert look() == ("555", "open", "6.1")
    assert len(json.loads(cache.read_text())) == 1
    assert cache.parent.stat().st_mode & 0o777 == 0o755
    cache.write_text("[1")
    assert look() == ("555", "open", "6.1")
    cache.unlink()
    cache.mkdir()  # as a disk with no room: what cannot be remembered is read again
    assert look() == ("555", "open", "6.1")
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]
    module.write_text("")
    assert isinstance(look(), records.Missing)
    assert isinstance(look(), records.Missing)
    assert reads[-2:] == ["", ""]


def test_locked_clocks_survive_a_torn_file(tmp_path: Path) -> None:
    locks = (records.LockedClocks("GPU-1", None, 1590, "boot"), records.LockedClocks("GPU-2", 1215, 1410, "boot"))
    text = managed.locked_clocks_document(locks)
    path = tmp_path / "locked-clocks.json"
    path.write_text(text)
    assert managed.read_locked_clocks(path) == locks
    for torn in (text[: len(text) // 2], "[]", '{"locked": [{}]}', '{"locked": 3}'):
        path.write_text(torn)
        assert managed.read_locked_clocks(path) == ()


def test_the_installed_agent_tells_its_version(tmp_path: Path) -> None:
    program = tmp_path / "gpuprep-agent"
    assert managed.installed_agent_version(str(program), tmp_path) is None
    script(program, "echo gpuprep-agent 9.8.7")
    assert managed.installed_agent_version(str(program), tmp_path) == "9.8.7"
    package = tmp_path / "current/lib/python3.13/site-packages/gpuprep"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""gpuprep."""\n\n__version__ = "1.2.3"\n')
    assert managed.installed_agent_version(str(program), tmp_path) == "1.2.3"


def test_modules_of_dkms_by_its_tree(tmp_path: Path) -> None:
    """The folders as dkms 3.2 leaves them on Debian 13."""
    version = tmp_path / "nvidia-current" / "550.163.01"
    (version / "source").mkdir(parents=True)
    assert agentreadings.dkms_modules(tmp_path) == (records.DkmsModule("nvidia-current", "550.163.01", None, "added"),)
    for kernel in ("6.12.1-cloud", "6.12.2-cloud", "6.12.3-cloud"):
        (version / kernel / "x86_64" / "module").mkdir(parents=True)
    (version / "build").mkdir()
    (version.parent / "kernel-6.12.1-cloud-x86_64").symlink_to("550.163.01/6.12.1-cloud/x86_64")
    (version.parent / "kernel-6.12.3-cloud-x86_64").symlink_to("535.1/6.12.3-cloud/x86_64")
    assert [(module.kernel, module.state) for module in agentreadings.dkms_modules(tmp_path)] == [
        ("6.12.1-cloud", "installed"),
        ("6.12.2-cloud", "built"),
        ("6.12.3-cloud", "built"),
    ]
    assert agentreadings.dkms_modules(tmp_path / "nothing") == ()


# ---------------------------------------------------------------- manifests


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ffmpeg").write_bytes(b"program" * 300_000)
    digest = hashlib.sha256(b"program" * 300_000).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps({"key": "abc", "files": {"bin/ffmpeg": digest}}))
    return tmp_path


def intact(folder: Path) -> bool | records.Missing:
    manifest = read_manifest(folder)
    assert isinstance(manifest, dict)
    return is_intact(folder, manifest)


def test_a_manifest_tells_a_changed_and_a_lost_file(build: Path) -> None:
    assert intact(build) is True
    with (build / "bin" / "ffmpeg").open("ab") as file:
        file.write(b"!")
    assert intact(build) is False
    (build / "bin" / "ffmpeg").unlink()
    assert intact(build) is False


def test_a_manifest_that_names_nothing_proves_nothing(build: Path) -> None:
    (build / "manifest.json").write_text('{"files": {}}')
    assert isinstance(intact(build), records.Missing)
    (build / "manifest.json").write_text("{")
    assert isinstance(read_manifest(build), records.Missing)
    (build / "manifest.json").unlink()
    assert read_manifest(build) is None


def test_cudnn_is_what_lies_beside_the_library(tmp_path: Path) -> None:
    for folder in ("lib", "include"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib" / "libcudnn.so.9.10.2").touch()
    (tmp_path / "lib" / "libcudnn.so.9").symlink_to("libcudnn.so.9.10.2")
    header = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n"
    (tmp_path / "include" / "cudnn_version.h").write_text(header)
    (tmp_path / "manifest.json").write_text('{"version": "9.10.2.21", "cuda_major": 12}')

    facts = agentreadings.cudnn_facts(tmp_path / "lib" / "libcudnn.so.9", tmp_path)
    assert facts.library_path == str(tmp_path / "lib" / "libcudnn.so.9.10.2")
    assert (facts.version, facts.wheel_version, facts.cuda_major) == ("9.10.2", "9.10.2.21", "12")
    assert facts.header_path == str(tmp_path / "include" / "cudnn_version.h")


# ---------------------------------------------------------------- shells


def test_a_login_shell_that_talks_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakeprograms.home(monkeypatch, tmp_path)
    (tmp_path / ".bash_profile").write_text(
        'echo "Welcome!"; export PATH="/opt/mine/bin:$PATH"; trap "echo bye" EXIT\n'
    )
    path = shells.login_path()
    assert isinstance(path, str)
    assert path.startswith("/opt/mine/bin:")
    (tmp_path / ".bash_profile").write_text("exit 1\n")
    assert isinstance(shells.login_path(), records.Missing)


def test_versions_of_python_modules() -> None:
    found = shells.python_modules(("json", "no_such_module"), os.environ["PATH"])
    assert isinstance(found["json"], str)
    assert found["no_such_module"] is None
    assert shells.python_modules((), "") == {}
    assert shells.python_modules(("json",), "/nowhere") == {"json": records.Missing("command_not_found", "python3")}


# ---------------------------------------------------------------- the toolkit probe


def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> dict[str, object]:
    script(tmp_path / "nvcc", 'case "$1" in --version) echo "release 12.4, V12.4.131"; exit;; esac\n' + text)
    fakeprograms.login(monkeypatch, tmp_path / "home", f"{tmp_path}:/usr/bin:/bin")
    values = measure("toolkit", timeout_seconds=300)
    assert isinstance(values, dict)
    return values


def test_the_toolkit_probe_reports_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    good = probe(tmp_path, monkeypatch, 'grep -q __global__ "$3" && touch "$2"; pwd')
    assert (good["compiles"], good["version"], good["nvcc"]) == (True, "12.4", str(tmp_path / "nvcc"))
    assert str(good["output"]).startswith(str(tmp_path / "gpuprep-toolkit-"))
    bad = probe(tmp_path, monkeypatch, "echo 'nvcc fatal: Unsupported gpu architecture' >&2; exit 1")
    assert (bad["compiles"], bad["output"]) == (False, "nvcc fatal: Unsupported gpu architecture")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "nvcc"]


def test_no_nvcc_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakeprograms.login(monkeypatch, tmp_path, str(tmp_path))
    agentreadings.no_nvcc_elsewhere(monkeypatch)
    values = measure("toolkit")
    assert isinstance(values, records.Missing)
    assert values.reason == "not_installed"


@pytest.mark.only_all
def test_a_real_nvcc_compiles() -> None:
    values = measure("toolkit")
    if isinstance(values, records.Missing):
        pytest.skip(f"no CUDA toolkit here: {values.detail}")
    assert values["compiles"], values["output"]


# ---------------------------------------------------------------- the command line of the agent


def test_the_agent_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        agent.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("gpuprep-agent ")


def test_tune_with_wrong_settings_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tuning.json"
    assert agent.main(["tune", "check", "--settings", str(path)]) == 2
    path.write_text('{"persistence": 3}')
    assert agent.main(["tune", "check", "--settings", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("gpuprep-agent: ") and str(path) in line for line in lines)


def test_another_agent_than_expected_ends_at_once() -> None:
    assert agent.main(["facts", "--expect", "0.0.0+other"]) == 97


def test_libraries_of_one_and_of_two_numbers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has libcupti.so.11.8, Debian 13 libcupti.so.12, and cuDNN libcudnn.so.9."""
    for name in ("libcupti.so.9.2", "libcupti.so.11.8", "libcupti.so", "libcupti.so.11.8x", "libcudnn.so.9"):
        (tmp_path / name).touch()
    fakeprograms.ldconfig(monkeypatch, tmp_path / "bin", *tmp_path.iterdir())
    assert loaders.Loader().find_newest("libcupti.so") == str(tmp_path / "libcupti.so.11.8")
    assert loaders.Loader().find_newest("libcudnn.so") == str(tmp_path / "libcudnn.so.9")
    assert loaders.Loader().find_newest("libnone.so") is None


def test_sudo_is_asked_where_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_run, "SEARCH_PATH", f"{tmp_path}:{agent_run.SEARCH_PATH}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    said = "Sudoers path: /etc/sudoers\nValue to override user's $PATH with: /sbin:/bin\nPath to mail program: /x\n"
    for text, path in ((said, "/sbin:/bin"), ("Sudoers path: /etc/sudoers\n", None)):
        (tmp_path / "said").write_text(text)
        fakeprograms.program(tmp_path / "sudo", f'test "$*" = -V && cat {tmp_path}/said')
        assert shells.sudo_path() == path
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert isinstance(shells.sudo_path(), records.Missing)


def test_lines_that_decide_what_is_found_first_are_read_with_their_files(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    both = (f"{tmp_path}/link", str(real))
    texts = {
        "etc/ld.so.conf.d/000.conf": f"# mine\n/opt/mine\n{tmp_path}/link/\ninclude x\n",
        "etc/profile.d/conda.sh": "export PATH=/opt/conda/bin:$PATH\n# PATH=/no\nMANPATH=/no\n",
        "etc/profile.d/cuda.sh": f'LD_LIBRARY_PATH="{tmp_path}/link:$HOME/x"\n',
        "etc/profile.d/no.txt": "PATH=/no\n",
        "etc/systemd/system.conf.d/x.conf": "[Manager]\nDefaultEnvironment=PATH=/opt/s/bin:/opt/t\n",
        "etc/apt/apt.conf.d/99mine": "#clear Unattended-Upgrade::Package-Blacklist;\nAPT::X 1;\n",
        "etc/environment": "PATH=/" + "x" * 500 + "\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = [(Path(one.file).name, one.line, one.folders) for one in configlines.lines(tmp_path, tmp_path / "home")]
    assert found == [
        ("conda.sh", "export PATH=/opt/conda/bin:$PATH", ("/opt/conda/bin",)),
        ("cuda.sh", f'LD_LIBRARY_PATH="{tmp_path}/link:$HOME/x"', both),
        ("000.conf", "/opt/mine", ("/opt/mine",)),
        ("000.conf", f"{tmp_path}/link/", both),
        ("x.conf", "DefaultEnvironment=PATH=/opt/s/bin:/opt/t", ("/opt/s/bin", "/opt/t")),
        ("99mine", "#clear Unattended-Upgrade::Package-Blacklist;", ()),
    ]


def test_dpkg_and_rpm_say_whose_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_run, "SEARCH_PATH", f"{tmp_path}:{agent_run.SEARCH_PATH}")
    owned, free, gone = (str(tmp_path / name) for name in ("owned", "free", "gone"))
    for path in (owned, free):
        Path(path).touch()
    fakeprograms.program(
        tmp_path / "dpkg-query",
        "echo 'diversion by glx from: /usr/bin/nvidia-smi'; echo 'a:amd64, b: /bin/nvidia-smi'\n"
        "echo 'c: /etc/x y'; exit 1",
    )
    monkeypatch.setattr(packages, "RED_HAT", tmp_path / "no-release")
    asked = ("/usr/bin/nvidia-smi", "/etc/x y", "/etc/mine", "relative")
    assert packages.owners(asked) == {"/usr/bin/nvidia-smi": "a", "/etc/x y": "c", "/etc/mine": None}
    monkeypatch.setattr(packages, "RED_HAT", tmp_path)
    answer = f'for path in "$@"; do case $path in {owned}) %s;; {free}) echo file $path is of no package;; esac; done'
    for said in ("echo acme", "echo acme; echo other"):  # a file of two packages has two lines
        fakeprograms.program(tmp_path / "rpm", f"{answer % said}; exit 1")
        assert packages.owners([owned, free, gone]) == {owned: "acme", free: None, gone: None}
