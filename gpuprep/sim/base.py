"""The base disk of every machine of a release: the contents of a Debian cloud image, made once by mmdebstrap.

The name of the base is made from its recipe, so a changed recipe makes a new base. It gets that name only when it is
complete: a killed build leaves a temporary folder that the next build removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpuprep.errors import SimError
from gpuprep.sim import chroot, controller, paths, rpmbase
from gpuprep.sim.archive import systems
from gpuprep.sim.paths import Progress

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "kmod", "openssh-server", "sudo", "python3",
    "ca-certificates", "iproute2", "iputils-ping", "procps", "pciutils", "cron", "netbase", "less", "logrotate",
    "linux-image-cloud-amd64", "initramfs-tools", "e2fsprogs", "fdisk", "gpgv", "apt-utils",
)  # fmt: skip
USER = "debian"
RECIPE_VERSION = 4
# No machine boots with its initramfs: the modules of all hardware would be packed into it again and again.
INITRAMFS = "etc/initramfs-tools/conf.d/gpuprep-sim"
SMALL_INITRAMFS = (
    f'cd "$1" && mkdir -p $(dirname {INITRAMFS}) && printf "MODULES=list\\nCOMPRESSLEVEL=1\\n" >{INITRAMFS}'
)
# dpkg's setting to write without fsync while a base is made; it is removed for the machine's own dpkg.
UNSAFE_IO = "etc/dpkg/dpkg.cfg.d/99mmdebstrap"

SSHD = """\
# A simulated VM shares the network of its computer: its port is in gpuprep-sim-port.conf.
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
HostKey /etc/ssh/ssh_host_ed25519_key
UseDNS no
"""


def release(os_name: str) -> str:
    """The codename of the Debian release below `debian12` or `ubuntu2404`; raises SimError for another."""
    try:
        return systems.systems()[os_name].debian
    except KeyError:
        raise SimError(f"no simulated OS {os_name!r}", f"known: {', '.join(systems.systems())}") from None


def ensure(os_name: str, progress: Progress = lambda _: None) -> Path:
    """The base of a release, made now if it is not there (about 40 s and 700 MB)."""
    codename = release(os_name)
    if os_name in systems.rpm_systems():
        recipe = {**_recipe(codename, rpmbase.packages(PACKAGES)), "rpm": rpmbase.fingerprint()}
        return _made(f"{codename}-rpm", recipe, "the base disk of RPM systems", progress, _rpm)
    recipe = _recipe(codename, PACKAGES)
    return _made(codename, recipe, f"the base disk of {os_name} ({codename})", progress, _debian)


def root(name: str, codename: str, packages: Sequence[str], progress: Progress = lambda _: None) -> Path:
    """A folder with a minimal Debian and these packages, which is no machine: for builds."""
    return _made(name, _recipe(codename, packages), f"the build root {name} ({codename})", progress, _bootstrap)


def copy(name: str, os_name: str, progress: Progress = lambda _: None) -> Path:
    """A copy of a base, which is no machine: for builds with the programs that the base has, far faster than root()."""
    origin = str(ensure(os_name, progress))
    return _made(name, {"copy_of": origin}, f"the build root {name}", progress, _copy)


def _made(
    name: str, recipe: dict[str, Any], what: str, progress: Progress, make: Callable[[Path, dict[str, Any]], None]
) -> Path:
    """The folder of this recipe, made now if it is not there."""
    folder = paths.private(paths.cache_dir() / "bases")
    return paths.made(folder / f"{name}-{_digest(recipe)}", name, what, lambda root: make(root, recipe), progress)


def _recipe(codename: str, packages: Sequence[str]) -> dict[str, Any]:
    mirrors = controller.mirrors()
    return {
        "version": RECIPE_VERSION,
        "codename": codename,
        "packages": tuple(packages),
        "sshd": SSHD,
        "mirror": mirrors.debian,
        "security": mirrors.security,
        "proxies": controller.proxies(),
        "pip": controller.pip_settings(),
        "certificates": _digest(controller.certificates()),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _sources(codename: str, debian: str, security: str) -> str:
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return (
        f"Types: deb\nURIs: {debian}\nSuites: {codename} {codename}-updates\nComponents: main\nSigned-By: {keyring}\n\n"
        f"Types: deb\nURIs: {security}\nSuites: {codename}-security\nComponents: main\nSigned-By: {keyring}\n"
    )


def _copy(root: Path, recipe: dict[str, Any]) -> None:
    command = ["cp", "--archive", "--reflink=auto", recipe["copy_of"], str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SimError(f"a base disk could not be copied: {done.stderr.strip()}", "is there enough room on the disk?")


def _bootstrap(root: Path, recipe: dict[str, Any]) -> None:
    codename = recipe["codename"]
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(recipe['packages'])}", "--mode=root", "--quiet"]
    command.append("--dpkgopt=force-unsafe-io")
    if "initramfs-tools" in recipe["packages"]:
        command.append(f"--essential-hook={SMALL_INITRAMFS}")
    # Without a mirror of the controller mmdebstrap takes Debian's own default.
    arguments = [codename, str(root)]
    source = ""
    if recipe["mirror"]:
        arguments.append("-")
        source = _sources(codename, str(recipe["mirror"]), str(recipe["security"] or recipe["mirror"]))
        if not recipe["security"]:
            source = source.split("\n\n")[0] + "\n"
    environment = {
        **os.environ,
        "DEBIAN_FRONTEND": "noninteractive",
        **{k: str(v) for k, v in controller.proxies().items()},
    }
    done = subprocess.run(
        command + arguments, input=source, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise SimError(
            f"mmdebstrap could not make the base disk of {codename}:\n{last}", "is Debian's mirror reachable?"
        )
    (root / UNSAFE_IO).unlink()


def _debian(root: Path, recipe: dict[str, Any]) -> None:
    _bootstrap(root, recipe)
    _common(root, recipe)
    _divert(root)


def _rpm(root: Path, recipe: dict[str, Any]) -> None:
    _bootstrap(root, recipe)
    _common(root, recipe)
    rpmbase.convert(root)


def _common(root: Path, recipe: dict[str, Any]) -> None:
    mirrors = controller.find_mirrors(controller.read_sources(root / "etc/apt"))
    debian = str(recipe["mirror"] or mirrors.debian)
    security = str(recipe["security"] or mirrors.security or "")
    text = _sources(recipe["codename"], debian, security)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for old in (root / "etc/apt/sources.list.d").iterdir():
        old.unlink()
    _write(root / "etc/apt/sources.list.d/debian.sources", text if security else text.split("\n\n")[0] + "\n")
    _write(root / "etc/ssh/sshd_config.d/10-cloud.conf", SSHD)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    _write(root / "etc/gpuprep-sim", "a simulated VM: its GPU and its running kernel are stand-ins\n")
    _write(root / "etc/fstab", "")
    _write(root / "etc/default/locale", "LANG=C.UTF-8\n")
    _write(root / "etc/machine-id", "")
    _network(root)
    groups = "adm,sudo,cdrom,dip,video,plugdev"
    chroot.run(root, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", groups, USER)
    _write(root / "etc/sudoers.d/90-cloud-init-users", f"{USER} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    chroot.run(root, "passwd", "--lock", "root")
    _certificates(root)


def _divert(root: Path) -> None:
    """nvidia-persistenced's program needs hardware: dpkg puts the package's own aside and leaves ours in its place."""
    program = "/usr/bin/nvidia-persistenced"
    chroot.run(root, "dpkg-divert", "--local", "--no-rename", "--divert", f"{program}.real", "--add", program)
    (root / program.lstrip("/")).symlink_to("/usr/lib/gpuprep-sim/nvidia-persistenced")


def _network(root: Path) -> None:
    proxies = controller.proxies()
    if proxies:
        lines = [f'{name}="{value}"' for name, value in proxies.items()]
        _write(root / "etc/environment", "\n".join(lines) + "\n")
        settings = [
            f'Acquire::{scheme}::Proxy "{proxies[scheme + "_proxy"]}";'
            for scheme in ("http", "https")
            if scheme + "_proxy" in proxies
        ]
        _write(root / "etc/apt/apt.conf.d/90proxy", "\n".join(settings) + "\n")
    pip = controller.pip_settings()
    # pip carries its own list of certificates: point it at the system's, which has the controller's.
    pip["cert"] = "/etc/ssl/certs/ca-certificates.crt"
    _write(root / "etc/pip.conf", "[global]\n" + "".join(f"{key} = {value}\n" for key, value in pip.items()))


def _certificates(root: Path) -> None:
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    known = set(controller.CERTIFICATE.findall(bundle.read_text()))
    extra = [pem for pem in controller.certificates() if pem.strip() not in known]
    for number, pem in enumerate(extra):
        _write(root / f"usr/local/share/ca-certificates/controller-{number}.crt", pem)
    if extra:
        chroot.run(root, "update-ca-certificates")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
