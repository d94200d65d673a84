"""Makes the files of a stub RPM package, as far as gpuprep and real tools (dkms, ldconfig, systemd) look at them.

The machine is really a Debian. A program that a package brings on a real system is in the base already, hidden
(rpmbase.py): the stub puts a link to it where it belongs. So it is there when its package is, and only then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpuprep.sim.archive import payload
from gpuprep.sim.archive.payload import Payload
from gpuprep.sim.archive.stubs import Stub

STAND_INS = "usr/lib/gpuprep-sim"
HIDDEN = f"{STAND_INS}/debian"  # Debian's files that packages bring, by their own path
HEADERS = f"{STAND_INS}/headers"  # Debian's kernel headers: `common`, `flavour` and `kbuild`
LIBRARIES = "usr/lib64"
DNF_PLUGINS = "usr/lib/python3/dist-packages/dnf-plugins"

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "clang": ("usr/bin/clang",),
    "dkms": ("usr/sbin/dkms",),
    "gcc": ("usr/bin/gcc", "usr/bin/cc"),
    "gcc-c++": ("usr/bin/g++",),
    "make": ("usr/bin/make",),
    "nasm": ("usr/bin/nasm",),
    "pkgconf-pkg-config": ("usr/bin/pkg-config",),
    "python3-dnf-plugin-versionlock": (f"{DNF_PLUGINS}/versionlock.py",),
    "python3-pip": ("usr/bin/pip3",),
    "tmux": ("usr/bin/tmux",),
}
DRIVER_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "libnvidia-ml": ("libnvidia-ml.so.1",),
    "nvidia-driver-NVML": ("libnvidia-ml.so.1",),
    "nvidia-driver-cuda-libs": ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1"),
    "libnvidia-cfg": ("libnvidia-cfg.so.1",),
}
AMAZONS_KERNEL = re.compile(r"kernel(\d\.\d+)?")  # one package; kernel-core is Enterprise Linux's
DEVEL = re.compile(r"kernel(\d\.\d+)?-devel")
GENERATED = (
    "asm-offsets.h", "autoconf.h", "bounds.h", "compile.h", "package.h", "rustc_cfg", "timeconst.h", "uapi",
    "utsversion.h",
)  # fmt: skip
MODULE = re.compile(r"kmod-nvidia-(open|latest)-dkms")
PREBUILT = "kmod-nvidia-open"
BLACKLIST = "# A stand-in of gpuprep for NVIDIA's file.\nblacklist nouveau\noptions nouveau modeset=0\n"

# As in NVIDIA's packages: a module that does not build is no error of the package. The old package's `remove` comes
# last: where both kinds have one name and version in DKMS, exchanging them in one transaction leaves no module at all.
MODULE_POST = """\
dkms add -m {name} -v {version} -q || :
dkms build -m {name} -v {version} -q || :
dkms install -m {name} -v {version} -q --force || :
"""
MODULE_PREUN = "dkms remove -m {name} -v {version} -q --all || :\n"
KERNEL_POSTTRANS = """\
rm -f /boot/grub2/grubenv  # UPDATEDEFAULT=yes: the newest kernel starts
kernel-install add {release} /lib/modules/{release}/vmlinuz || :
"""
KERNEL_PREUN = "kernel-install remove {release} || :\nrm -f /boot/initramfs-{release}.img\n"
DKMS_KERNEL_INSTALL = """\
#!/bin/sh
# Builds the modules of DKMS for a kernel that is being installed.
case "$1" in
  add) [ ! -e "/lib/modules/$2/build/Makefile" ] || dkms autoinstall --kernelver "$2" || : ;;
  remove) [ ! -x /etc/kernel/prerm.d/dkms ] || /etc/kernel/prerm.d/dkms "$2" || : ;;
esac
"""
DRACUT_KERNEL_INSTALL = '#!/bin/sh\n[ "$1" != add ] || dracut --force "/boot/initramfs-$2.img" "$2"\n'
DKMS_UNIT = """\
[Unit]
Description=Builds and install new kernel modules through DKMS
[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh -c 'dkms autoinstall --kernelver "$(uname -r)"'
[Install]
WantedBy=multi-user.target
"""
VERSIONLOCK = "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
REPOSITORY = """\
[{name}]
name={title}
baseurl=file:///{inside}/{folder}
enabled={enabled}
gpgcheck=1
gpgkey=file:///{key}
"""
INSIDE = f"{STAND_INS}/archive"  # where a machine has the stub archives
KEY = f"{INSIDE}/key.asc"  # that signs them


def rpm_payload(stub: Stub) -> Payload:
    content = Payload()
    for path in PROGRAMS.get(stub.name, ()):
        content.links[path] = f"/{HIDDEN}/{path}"
    for soname in DRIVER_LIBRARIES.get(stub.name, ()):
        payload.library(content, LIBRARIES, soname, stub.upstream)
        content.scripts = {"post": "ldconfig\n", "postun": "ldconfig\n"}
    if match := MODULE.fullmatch(stub.name):
        _module(content, stub.upstream, is_open=match[1] == "open")
    if stub.name == PREBUILT:
        _prebuilt(content, stub)
    if match := payload.TOOLKIT.fullmatch(stub.name):
        _toolkit(content, stub, match)
    if stub.name == payload.CONTAINERS:
        payload.container_toolkit(content, stub)
    if re.fullmatch(r"nvidia-fabric-?manager", stub.name):
        content.texts["usr/lib/systemd/system/nvidia-fabricmanager.service"] = (payload.FABRIC_UNIT, False)
        content.texts["usr/bin/nv-fabricmanager"] = (payload.FABRIC, True)
    if stub.name == "kernel-core" or (".amzn" in stub.version and AMAZONS_KERNEL.fullmatch(stub.name)):
        _kernel(content, _release(stub))
    if DEVEL.fullmatch(stub.name):
        _headers(content, _release(stub))
    own = OWN.get(stub.name)
    if own is not None:
        own(content)
    return content


def _release(stub: Stub) -> str:
    """What `uname -r` says of a kernel package: without the epoch, with the architecture."""
    return f"{stub.version.split(':')[-1]}.x86_64"


def _module(content: Payload, version: str, *, is_open: bool) -> None:
    name = "nvidia-open" if is_open and int(version.split(".")[0]) <= 570 else "nvidia"
    payload.module_source(content, name, version, is_open=is_open)
    content.scripts = {
        "post": MODULE_POST.format(name=name, version=version),
        "preun": MODULE_PREUN.format(name=name, version=version),
    }


def _prebuilt(content: Payload, stub: Stub) -> None:
    """For the kernel that it depends on."""
    kernel = next(word.rpartition(" ")[2] for word in stub.relations["depends"] if "-uname-r = " in word)
    payload.ready_modules(content, f"usr/lib/modules/{kernel}/extra/nvidia-open", stub.upstream, is_open=True)
    content.scripts = {script: f"depmod {kernel} || :\n" for script in ("post", "postun")}


def _toolkit(content: Payload, stub: Stub, match: re.Match[str]) -> None:
    payload.toolkit(content, stub, match)
    if match["rest"]:
        version = f"{match['major']}.{match['minor']}"
        link = f"/usr/local/cuda cuda /usr/local/cuda-{version}"
        content.scripts = {
            # In posttrans: Debian's program needs the folder, which other packages bring.
            "posttrans": f"alternatives --install {link} {match['major']}{match['minor']}\n",
            "preun": f'[ "$1" != 0 ] || alternatives --remove cuda /usr/local/cuda-{version}\n',
        }


def _kernel(content: Payload, release: str) -> None:
    folder = f"usr/lib/modules/{release}"
    for name in ("modules.builtin", "modules.order"):
        content.texts[f"{folder}/{name}"] = ("", False)
    for name in (f"{folder}/vmlinuz", f"boot/vmlinuz-{release}"):
        content.texts[name] = (f"a stand-in for the kernel {release}\n", True)
    content.links[f"boot/config-{release}"] = f"/{HEADERS}/flavour/.config"
    content.links[f"{folder}/config"] = f"/{HEADERS}/flavour/.config"
    content.links[f"{folder}/build"] = f"/usr/src/kernels/{release}"  # dangles until the headers are installed
    content.links[f"{folder}/source"] = "build"
    content.scripts = {
        "posttrans": KERNEL_POSTTRANS.format(release=release),
        "preun": KERNEL_PREUN.format(release=release),
    }


def _headers(content: Payload, release: str) -> None:
    """Debian's headers under this kernel's name: three files say the name, the rest are links."""
    folder, flavour = f"usr/src/kernels/{release}", f"/{HEADERS}/flavour"
    content.texts |= {
        f"{folder}/Makefile": (f"include /{HEADERS}/common/Makefile\n", False),
        f"{folder}/.kernelvariables": (
            f"override ARCH = x86\noverride KERNELRELEASE = {release}\nDEBIAN_KERNEL_NO_CC_VERSION_CHECK = y\n",
            False,
        ),
        f"{folder}/include/config/kernel.release": (f"{release}\n", False),
        f"{folder}/include/generated/utsrelease.h": (f'#define UTS_RELEASE "{release}"\n', False),
    }
    names = [".config", "Module.symvers", "arch", "include/config/auto.conf"]
    names += [f"include/generated/{name}" for name in GENERATED]
    content.links |= {f"{folder}/{name}": f"{flavour}/{name}" for name in names}
    content.links |= {f"{folder}/{name}": f"/{HEADERS}/kbuild/{name}" for name in ("scripts", "tools")}


def _program(name: str, path: str) -> tuple[str, tuple[str, bool]]:
    return path, (payload.program(name), True)


def _smi(content: Payload) -> None:
    content.smi = "usr/bin/nvidia-smi"


def _persistenced(content: Payload) -> None:
    unit = payload.DAEMON_UNIT.format(unit="", option=" --verbose", install="[Install]\nWantedBy=multi-user.target\n")
    content.texts["usr/lib/systemd/system/nvidia-persistenced.service"] = (unit, False)
    content.links["usr/bin/nvidia-persistenced"] = f"/{STAND_INS}/nvidia-persistenced"
    content.scripts = {"post": payload.DAEMON_POSTINST.removeprefix("#!/bin/sh\nset -e\n")}


def _common(content: Payload) -> None:
    content.texts["usr/lib/modprobe.d/nvidia.conf"] = (BLACKLIST, False)


def _dkms(content: Payload) -> None:
    content.texts["usr/lib/kernel/install.d/40-dkms.install"] = (DKMS_KERNEL_INSTALL, True)
    content.texts["usr/lib/systemd/system/dkms.service"] = (DKMS_UNIT, False)
    content.scripts = {"post": "systemctl -q enable dkms.service || :\n"}


def _dracut(content: Payload) -> None:
    content.texts.update([_program("dracut", "usr/bin/dracut"), _program("lsinitrd", "usr/bin/lsinitrd")])
    content.texts["usr/lib/kernel/install.d/50-dracut.install"] = (DRACUT_KERNEL_INSTALL, True)


def _grubby(content: Payload) -> None:
    content.texts.update([_program("grubby", "usr/sbin/grubby")])


def _versionlock(content: Payload) -> None:
    content.texts["etc/dnf/plugins/versionlock.conf"] = (VERSIONLOCK, False)
    content.texts["etc/dnf/plugins/versionlock.list"] = ("", False)


def repository(name: str, title: str, folder: str, *, enabled: bool = True, key: str = KEY) -> str:
    """A repository in a file of /etc/yum.repos.d."""
    return REPOSITORY.format(name=name, title=title, inside=INSIDE, folder=folder, enabled=int(enabled), key=key)


def _adds(name: str, title: str) -> Callable[[Payload], None]:
    """For a package that adds a repository."""

    def add(content: Payload) -> None:
        content.texts[f"etc/yum.repos.d/{name}.repo"] = (repository(name, title, name), False)

    return add


OWN = {
    "almalinux-release-nvidia-driver": _adds("almalinux-nvidia", "AlmaLinux 10 - NVIDIA"),
    "dkms": _dkms,
    "dracut": _dracut,
    "epel-release": _adds("epel", "Extra Packages for Enterprise Linux"),
    "grubby": _grubby,
    "nvidia-driver-cuda": _smi,
    "nvidia-kmod-common": _common,
    "nvidia-persistenced": _persistenced,
    "nvidia-release": _adds("amazonlinux-nvidia", "Amazon Linux: NVIDIA"),
    "python3-dnf-plugin-versionlock": _versionlock,
}
