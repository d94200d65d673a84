"""Makes the base disk of RPM systems from a Debian: Debian's own package tools are hidden, dnf is set up as there.

Programs that a stub package is to bring (archive/rpmpayload.py) are hidden, too, and Debian's kernel headers are moved
to a place that does not name a kernel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from gpuprep.sim import chroot, layer
from gpuprep.sim.archive.rpmpayload import HEADERS, HIDDEN, PROGRAMS

# Of the packages of Debian's own machines.
WITHOUT = ("linux-image-cloud-amd64", "initramfs-tools", "gpgv", "apt-utils")
PACKAGES = (
    "dnf", "dnf-plugins-core", "rpm", "gnupg", "dkms", "linux-headers-cloud-amd64", "gcc", "make", "nasm", "clang",
    "pkg-config", "bzip2", "xz-utils", "libc6-dev", "python3-venv", "python3-pip", "curl", "patch", "g++", "tmux",
    "createrepo-c",
)  # fmt: skip
DEBIANS = (
    "usr/bin/apt*", "usr/bin/dpkg*", "usr/bin/deb-systemd-*", "usr/bin/debconf*", "usr/bin/update-alternatives",
    "usr/sbin/dpkg-*", "usr/lib/apt", "usr/lib/systemd/system/apt-daily*", "usr/lib/systemd/system/dpkg-db-backup*",
    "etc/apt", "etc/cron.daily/apt-compat", "etc/cron.daily/dpkg", "etc/debian_version", "etc/dpkg",
    "etc/logrotate.d/apt", "etc/logrotate.d/dpkg", "etc/systemd/system/timers.target.wants/apt-daily*",
    "etc/systemd/system/timers.target.wants/dpkg-db-backup*", "var/cache/apt", "var/lib/apt", "var/lib/dpkg",
    "etc/dnf/plugins/versionlock.*", "usr/lib/kernel/install.d/85-initrd.install",
    # For building the archives (rpmrepository.py), in a copy of this base.
    "usr/bin/*repo_c",
)  # fmt: skip
DNF = """\
[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
skip_if_unavailable=False
"""
# Debian's own keeps lists in a hidden folder.
ALTERNATIVES = f"""\
#!/bin/sh
exec /{HIDDEN}/usr/bin/update-alternatives --altdir /etc/alternatives --admindir /var/lib/alternatives "$@"
"""
FILES = {
    "etc/dnf/dnf.conf": DNF,
    "etc/dnf/plugins/local.conf": "[main]\nenabled = false\n",
    # Debian's would be ~/.rpmdb.
    "etc/rpm/macros": "%_dbpath /var/lib/rpm\n",
    "etc/ld.so.conf.d/lib64.conf": "/usr/lib64\n",
    "etc/locale.conf": "LANG=C.UTF-8\n",
    "etc/default/grub": 'GRUB_CMDLINE_LINUX="console=ttyS0"\n',
    # A unit of a package is off until somebody turns it on.
    "usr/lib/systemd/system-preset/99-default-disable.preset": "disable *\n",
    # The secure_path of these systems, without /usr/local.
    "etc/sudoers.d/10-path": "Defaults secure_path = /sbin:/bin:/usr/sbin:/usr/bin\n",
    # DKMS reads the distribution's name, and supports only `rhel`.
    "etc/dkms/framework.conf.d/extra.conf": 'addon_modules_dir="extra"\n',
}


def fingerprint() -> str:
    """A digest of this recipe: if it changes, a new base is made."""
    return hashlib.sha256((Path(__file__).read_text() + repr(sorted(PROGRAMS.items()))).encode()).hexdigest()[:12]


def packages(debians: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a base that is to become one of RPM systems."""
    return (*(name for name in debians if name not in WITHOUT), *PACKAGES)


def convert(root: Path) -> None:
    chroot.run(root, "groupmod", "--new-name", "wheel", "sudo")
    _headers(root)
    alternatives = root / "var/lib/dpkg/alternatives"
    alternatives.rename(root / "var/lib/alternatives")
    for pattern in DEBIANS:
        for path in sorted(root.glob(pattern)):
            _hide(root, path)
    for paths in PROGRAMS.values():
        for name in paths:
            _hide(root, root / name)
    for name, text in FILES.items():
        layer.write(root, name, text, 0o440 if "sudoers" in name else 0o644)
    layer.write(root, "usr/sbin/alternatives", ALTERNATIVES, 0o755)
    (root / "usr/sbin/update-alternatives").symlink_to("alternatives")
    (root / "usr/bin/yum").symlink_to("dnf")
    for folder in ("etc/yum.repos.d", "etc/pki/rpm-gpg", "var/lib/rpm"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    chroot.run(root, "ldconfig")


def _hide(root: Path, path: Path) -> None:
    """Move `path` to HIDDEN; a link is made again with its absolute target."""
    to = root / HIDDEN / path.relative_to(root)
    to.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        shutil.move(path, to)
        return
    leads = os.path.normpath("/" / path.relative_to(root).parent / path.readlink())
    to.symlink_to(leads)
    path.unlink()


def _headers(root: Path) -> None:
    """Debian's headers of one kernel, from which a stub of kernel-devel makes those of any."""
    place = root / HEADERS
    place.mkdir(parents=True)
    sources = root / "usr/src"
    for kind, pattern in {"common": "linux-headers-*-common", "flavour": "linux-headers-*-cloud-amd64"}.items():
        (folder,) = sources.glob(pattern)
        folder.rename(place / kind)
        for name in ("scripts", "tools"):
            (place / kind / name).unlink()
            (place / kind / name).symlink_to(f"/{HEADERS}/kbuild/{name}")
    (kbuild,) = (root / "usr/lib").glob("linux-kbuild-*")
    kbuild.rename(place / "kbuild")
    for link in sources.glob("linux-kbuild-*"):
        link.unlink()
    shutil.rmtree(root / "lib/modules", ignore_errors=True)  # a kernel's headers link from there
