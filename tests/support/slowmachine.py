"""A machine behind a real sshd whose GPU is made up and whose programs take their time: a validate to be interrupted.

The agent is sent along with a pynvml of this file, which answers for one T4. Sessions have an /etc/passwd of their own,
so that a login reads this file's profile and has the PATH of its programs. All else is the agent's own: its keeper, its
probes, its processes.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import sys
from pathlib import Path

import psutil
import sshserver
from fakeprograms import program
from places import ROOT

# Behind pynvml's own source: what a T4 answers; all else is NVML's "Uninitialized".
ANSWERS = """
import pathlib as _pathlib
from gpuprep.agent.facts import osfacts as _osfacts
_osfacts.pci.__defaults__ = (_pathlib.Path({home!r}) / "pci", _osfacts.PCI_NAMES)

def _says(answer):
    return lambda *_arguments: answer

nvmlInit = nvmlShutdown = _says(None)
nvmlDeviceGetCount = _says(1)
nvmlSystemGetDriverVersion = _says("550.163.01")
nvmlDeviceGetHandleByIndex = _says("T4")
nvmlDeviceGetName = _says("Tesla T4")
nvmlDeviceGetUUID = _says("GPU-11111111-2222-3333-4444-555555555555")
nvmlDeviceGetComputeRunningProcesses = nvmlDeviceGetGraphicsRunningProcesses = _says([])
nvmlDeviceGetPciInfo = _says(type("Pci", (), {{"busId": "00000000:00:1E.0", "pciDeviceId": 0x1EB810DE,
                                               "pciSubSystemId": 0x12A210DE}})())
nvmlDeviceGetMemoryInfo = _says(type("Memory", (), {{"total": 16106127360, "used": 0, "free": 16106127360}})())
"""
FFMPEG = """case "$*" in
*-version*) echo "ffmpeg version 7.1.1";;
*-encoders*) printf ' V....D h264_nvenc   x\\n V....D hevc_nvenc   x\\n V....D libx264   x\\n A....D aac   x\\n';;
*-decoders*) printf ' V....D h264_cuvid   x\\n V....D hevc_cuvid   x\\n';;
*-filters*) printf ' ... scale_cuda   V->V x\\n ... scale_npp   V->V x\\n ... hwupload_cuda   V->V x\\n';;
*-hwaccels*) printf 'Hardware acceleration methods:\\ncuda\\n';;
*-muxers*) printf ' E  mp4             x\\n';;
*-demuxers*) printf ' D  mov,mp4         x\\n';;
*-bsfs*) printf 'Bitstream filters:\\nh264_mp4toannexb\\n';;
*-protocols*) printf 'Input:\\n  file\\nOutput:\\n  file\\n';;
*-pix_fmts*) printf 'IO... yuv420p                3             12      8-8-8\\n';;
*-buildconf*) printf '  --enable-nvenc\\n';;
*) sleep {seconds}; exit 1;;
esac"""
NVCC = """case "$*" in
*--version*) echo "Cuda compilation tools, release 12.4, V12.4.131";;
*) sleep {seconds}; exit 1;;
esac"""
# {passwd}: a path without a quote or a blank.
SESSION = """ForceCommand exec unshare --mount sh -c '
mount --bind {passwd} /etc/passwd && exec "$SHELL" -c "$SSH_ORIGINAL_COMMAND"
'""".replace("\n", " ")


class SlowMachine:
    """`environment` and `words` start a validate of it; `left()` are the processes that it still has."""

    def __init__(self, folder: Path, home: Path, seconds: float = 0.7, *, transcodes: bool = True) -> None:
        """`seconds` is how long each program works. Without `transcodes` ffmpeg never ends one."""
        self.login = folder / "login"
        self.bin = self.login / "bin"
        program(self.bin / "ffmpeg", FFMPEG.format(seconds=seconds if transcodes else "infinity"))
        program(self.bin / "ffprobe", "sleep 1")
        program(self.bin / "nvcc", NVCC.format(seconds=seconds))
        (self.login / ".bash_profile").write_text(f"PATH={self.bin}:/usr/bin:/bin\n")
        device = self.login / "pci" / "0000:00:1e.0"
        device.mkdir(parents=True)
        for name, value in {"vendor": "10de", "device": "1eb8", "class": "030200", "subsystem_device": "12a2"}.items():
            (device / name).write_text(f"0x{value}\n")
        library = folder / "library"
        library.mkdir()
        real = importlib.util.find_spec("pynvml")
        assert real is not None
        assert real.origin is not None
        text = Path(real.origin).read_text(encoding="utf-8")
        (library / "pynvml.py").write_text(text + ANSWERS.format(home=str(self.login)))
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        passwd = folder / "passwd"
        account = pwd.getpwuid(os.getuid())
        at_home = ":".join(map(str, (*account[:5], self.login, account.pw_shell)))
        # Of two lines for an account the first counts.
        passwd.write_text(f"{at_home}\n{Path('/etc/passwd').read_text()}")
        variables = f"SetEnv HOME={folder} TMPDIR={self.scratch}"
        self.sshd = sshserver.Sshd(folder, home, variables, SESSION.format(passwd=passwd))
        self.sshd.trust()
        self.folder = folder
        self.environment = {
            **os.environ,
            **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")},
            "HOME": str(home),
            "PYTHONPATH": f"{library}:{ROOT}",
        }

    def words(self, command: str, *more: str) -> list[str]:
        # A shell that starts tests in the background has them ignore SIGINT.
        ours = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gpuprep.cli import main"
        return [sys.executable, "-c", f"{ours}; main({self.arguments(command, *more)!r})"]

    def arguments(self, command: str, *more: str) -> list[str]:
        host = f"{self.sshd.user}@127.0.0.1:{self.sshd.port}"
        store = f"sqlite:///{self.folder}/history.db"
        return [command, host, "--profile", "t4", "--ssh-key", str(self.sshd.key), "--store", store, *more]

    def left(self) -> list[str]:
        """What was started through its sshd and is still there, the sshd's own processes aside."""
        mark = f"HOME={self.folder}".encode()  # of all variables of a login the agent gives its programs this one
        found = []
        for process in psutil.process_iter(["pid", "name"]):
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if mark in environ and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:150]}")
            except (OSError, psutil.Error):
                continue
        return found
