"""Makes the files of a stub package, as far as gpuprep and real tools (dkms, ldconfig, systemd) look at them.

The kernel module is compiled by the machine's own DKMS, a prebuilt one here; it has a version and a licence, and no
code. Libraries have a name and a version. Each program says that it is a stand-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from gpuprep.sim.archive.stubs import Stub

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LICENCES = {True: "Dual MIT/GPL", False: "NVIDIA"}


@dataclass
class Payload:
    """Files by path: text, with True for a program, or the soname of a library to compile; and maintainer scripts."""

    texts: dict[str, tuple[str, bool]] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)  # path ► soname
    modules: dict[str, str] = field(default_factory=dict)  # path of a prebuilt kernel module ► its C
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)  # "postinst" ► its text
    triggers: str = ""
    smi: str = ""  # path of nvidia-smi's stand-in


# Library of the driver ► the packages that bring it: NVIDIA's for Ubuntu and Ubuntu's, then those for Debian.
DRIVER_LIBRARIES: Mapping[str, str] = {
    "libnvidia-ml.so.1": r"libnvidia-compute(-.*)?|libnvidia-ml1",
    "libcuda.so.1": r"libnvidia-compute(-.*)?|libcuda1",
    "libnvcuvid.so.1": r"libnvidia-decode(-.*)?|libnvcuvid1",
    "libnvidia-encode.so.1": r"libnvidia-encode(-.*)?|libnvidia-encode1",
}
TOOLKIT_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cuda-cudart": ("libcudart.so.{major}",),
    "cuda-cupti": ("libcupti.so.{major}",),
    "cuda-nvrtc": ("libnvrtc.so.{major}",),
    "libcublas": ("libcublas.so.{major}", "libcublasLt.so.{major}"),
    "libnvjitlink": ("libnvJitLink.so.{major}",),
}
DKMS = re.compile(r"nvidia-dkms(-\d+)?(-server)?(-open)?|nvidia-kernel-(open-)?dkms")
SMI = re.compile(r"nvidia-utils(-.*)?|nvidia-smi|nvidia-driver-cuda")
DAEMON = re.compile(r"nvidia-persistenced|nvidia-compute-utils-(550|\d+-server)")
CONTAINERS = "nvidia-container-toolkit-base"
KERNEL = re.compile(r"linux-image-(?P<kernel>\d.*)")
PREBUILT = re.compile(r"linux-modules-nvidia-(?P<branch>\d+)-server(?P<open>-open)?-(?P<kernel>\d.*)")
TOOLKIT = re.compile(r"(?P<part>.+?)-(?P<major>\d+)-(?P<minor>\d+)(?P<rest>-config-common)?")
# Debian's and Ubuntu's packages of the toolkit: libcudart12, libcublaslt11, and nvcc.
OWN_LIBRARY = re.compile(r"lib(?P<name>cudart|cupti|nvrtc|cublas|cublaslt)(?P<version>\d+(\.\d+)?)")
OWN_NVCC = "nvidia-cuda-toolkit"
PROFILERS = {"nsight-systems": "usr/bin/nsys", "nsight-compute": "usr/bin/ncu"}

MODULE = """\
#include <linux/module.h>
MODULE_LICENSE("{licence}");
MODULE_VERSION("{version}");
MODULE_DESCRIPTION("a stand-in of gpuprep for NVIDIA's kernel module");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc02i00*");
"""
DKMS_CONF = """\
PACKAGE_NAME="{name}"
PACKAGE_VERSION="{version}"
CLEAN="make clean"
MAKE[0]="make KERNEL_UNAME=${{kernelver}} modules"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/kernel/drivers/char/drm"
BUILT_MODULE_NAME[1]="nvidia-uvm"
DEST_MODULE_LOCATION[1]="/kernel/drivers/char/drm"
AUTOINSTALL="yes"
"""
MAKEFILE = """\
obj-m := nvidia.o nvidia-uvm.o
modules:
\t$(MAKE) -C /lib/modules/$(KERNEL_UNAME)/build M=$(CURDIR) modules
clean:
\trm -f *.o *.ko *.mod *.mod.c
"""
DKMS_POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  /usr/lib/dkms/common.postinst nvidia {version} /usr/share/nvidia "" "$2"
fi
"""
DKMS_PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] || [ "$1" = upgrade ] || [ "$1" = deconfigure ]; then
  dkms remove -m nvidia -v {version} --all || true
fi
"""
# A module that is built for no kernel: what modinfo tells is all that it has.
READY_MODULE = """\
static const char stand_in[] __attribute__((section(".modinfo"), used)) =
    "license={licence}\\0version={version}\\0description=a stand-in of gpuprep for NVIDIA's kernel module\\0"
    "alias=pci:v000010DEd*sv*sd*bc03sc02i00*";
"""
DEPMOD = """\
#!/bin/sh
set -e
[ ! -d /lib/modules/{kernel} ] || depmod {kernel}
"""
DAEMON_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
{unit}
[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced{option}
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
{install}"""
DAEMON_POSTINST = """\
#!/bin/sh
set -e
getent passwd nvidia-persistenced >/dev/null ||
  useradd --system --no-create-home --shell /usr/sbin/nologin nvidia-persistenced
systemctl daemon-reload 2>/dev/null || true
"""
FABRIC_UNIT = """\
[Unit]
Description=NVIDIA fabric manager service (stand-in)
[Service]
ExecStart=/usr/bin/nv-fabricmanager
[Install]
WantedBy=multi-user.target
"""
FABRIC = "#!/bin/sh\n# A stand-in: there is no NVSwitch.\nexec sleep infinity\n"
# By these a library is CUPTI or cuBLASLt. A simulated GPU has no counters: the parameter of the driver decides who may
# read them. Its matrix products ask the library for its version alone.
CUPTI = "int cuptiGetVersion(unsigned *version) { *version = 0; return 0; }\n"
CUBLASLT = "unsigned long cublasLtGetVersion(void) {{ return {number}; }}\n"
ALTERNATIVES = """\
#!/bin/sh
set -e
[ "$1" != configure ] || update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-{version} {priority}
"""
NO_ALTERNATIVES = """\
#!/bin/sh
set -e
[ "$1" != remove ] || update-alternatives --remove cuda /usr/local/cuda-{version}
"""


def payload(stub: Stub) -> Payload:
    content = Payload()
    upstream = stub.upstream
    if DKMS.fullmatch(stub.name):
        _dkms(content, upstream, is_open="open" in stub.name)
    for soname, owners in DRIVER_LIBRARIES.items():
        if re.fullmatch(owners, stub.name) and re.match(r"\d{3}\.", stub.version):
            library(content, LIBRARIES, soname, upstream)
    if SMI.fullmatch(stub.name):
        content.smi = "usr/bin/nvidia-smi"
    if DAEMON.fullmatch(stub.name):
        _daemon(content, ubuntus_own="-server" in stub.name)
    if re.fullmatch(r"nvidia-fabricmanager(-\d+)?", stub.name):
        content.texts["usr/lib/systemd/system/nvidia-fabricmanager.service"] = (FABRIC_UNIT, False)
        content.texts["usr/bin/nv-fabricmanager"] = (FABRIC, True)
    if match := TOOLKIT.fullmatch(stub.name):
        toolkit(content, stub, match)
    if match := OWN_LIBRARY.fullmatch(stub.name):
        name = match["name"].replace("blaslt", "blasLt")
        # Its file has the library's version alone, as the one that is loaded is known by it.
        library(content, LIBRARIES, f"lib{name}.so.{match['version']}", upstream.partition("~")[0])
    if stub.name == OWN_NVCC:
        _nvcc(content, "usr/bin/nvcc", upstream)
        content.texts["usr/lib/cuda/version.txt"] = (f"CUDA Version {upstream}\n", False)
    if path := PROFILERS.get(stub.name):
        content.texts[path] = ("#!/bin/sh\necho this is a stand-in of a simulated machine >&2\nexit 1\n", True)
    if match := KERNEL.fullmatch(stub.name):
        _kernel(content, match["kernel"])
    if match := PREBUILT.fullmatch(stub.name):
        _prebuilt(content, stub, match)
    if stub.name == CONTAINERS:
        container_toolkit(content, stub)
    return content


def library_code(soname: str, version: str) -> str:
    """What a library answers when it is asked, in C."""
    if soname.startswith("libcupti.so"):
        return CUPTI
    if soname.startswith("libcublasLt.so"):
        major, minor, patch = map(int, re.findall(r"\d+", version)[:3])
        return CUBLASLT.format(number=major * 10000 + minor * 100 + patch)
    return "int gpuprep_stand_in;\n"


def program(name: str) -> str:
    """The text of a stand-in program."""
    return (resources.files("gpuprep.sim.archive") / "programs" / name).read_text(encoding="utf-8")


def container_toolkit(content: Payload, stub: Stub) -> None:
    content.texts["usr/bin/nvidia-ctk"] = (program("nvidia-ctk").replace("@VERSION@", stub.upstream), True)


def _dkms(content: Payload, version: str, *, is_open: bool) -> None:
    module_source(content, "nvidia", version, is_open=is_open)
    content.scripts = {"postinst": DKMS_POSTINST.format(version=version), "prerm": DKMS_PRERM.format(version=version)}


def module_source(content: Payload, name: str, version: str, *, is_open: bool) -> None:
    """What DKMS compiles; `name` is DKMS's name of it."""
    folder = f"usr/src/{name}-{version}"
    module = MODULE.format(licence=LICENCES[is_open], version=version)
    for file, text in {"nvidia.c": module, "nvidia-uvm.c": module, "Makefile": MAKEFILE}.items():
        content.texts[f"{folder}/{file}"] = (text, False)
    content.texts[f"{folder}/dkms.conf"] = (DKMS_CONF.format(name=name, version=version), False)


def _kernel(content: Payload, kernel: str) -> None:
    """As much of a kernel as a boot loader and depmod look at."""
    content.texts[f"boot/vmlinuz-{kernel}"] = ("a stand-in of a simulated machine for a kernel\n", False)
    content.texts[f"boot/config-{kernel}"] = ("CONFIG_MODULES=y\nCONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\n", False)
    for file in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        content.texts[f"usr/lib/modules/{kernel}/{file}"] = ("", False)
    content.scripts = {"postinst": DEPMOD.format(kernel=kernel)}


def _prebuilt(content: Payload, stub: Stub, match: re.Match[str]) -> None:
    """The driver's version is in what it depends on. Canonical's closed modules are linked on the machine."""
    kernel, depends = match["kernel"], ", ".join(stub.relations["depends"])
    driver = re.search(r"nvidia-kernel-common-\S+ \(>= ([0-9.]+)\)", depends)
    assert driver is not None
    folder = f"usr/lib/modules/{kernel}/kernel/nvidia-{match['branch']}srv{match['open'] or ''}"
    ready_modules(content, folder, driver[1], is_open=bool(match["open"]))
    content.scripts = {script: DEPMOD.format(kernel=kernel) for script in ("postinst", "postrm")}


def ready_modules(content: Payload, folder: str, version: str, *, is_open: bool) -> None:
    """Modules that are built when their package is made."""
    text = READY_MODULE.format(licence=LICENCES[is_open], version=version)
    content.modules = {f"{folder}/{name}.ko": text for name in ("nvidia", "nvidia-uvm")}


def library(content: Payload, folder: str, soname: str, version: str) -> None:
    stem = soname.rpartition(".")[0]
    content.libraries[f"{folder}/{stem}.{version}"] = soname
    content.links[f"{folder}/{soname}"] = f"{stem}.{version}"
    content.triggers = "activate-noawait ldconfig\n"


def _daemon(content: Payload, *, ubuntus_own: bool) -> None:
    """Ubuntu's own unit is started by udev, ends when nobody needs it, and keeps persistence mode off."""
    unit = DAEMON_UNIT.format(
        unit="StopWhenUnneeded=true\n" if ubuntus_own else "",
        option=" --no-persistence-mode --verbose" if ubuntus_own else " --verbose",
        install="" if ubuntus_own else "[Install]\nWantedBy=multi-user.target\n",
    )
    content.texts["usr/lib/systemd/system/nvidia-persistenced.service"] = (unit, False)
    content.texts["usr/bin/nvidia-persistenced"] = ("#!/bin/sh\nexit 1\n", True)
    content.scripts = {"postinst": DAEMON_POSTINST}


def toolkit(content: Payload, stub: Stub, match: re.Match[str]) -> None:
    major, version = match["major"], f"{match['major']}.{match['minor']}"
    home = f"usr/local/cuda-{version}"
    if match["rest"]:
        priority = f"{major}{match['minor']}"
        content.scripts = {
            "postinst": ALTERNATIVES.format(version=version, priority=priority),
            "prerm": NO_ALTERNATIVES.format(version=version),
        }
    if match["part"] == "cuda-nvcc":
        _nvcc(content, f"{home}/bin/nvcc", stub.upstream)
    for soname in TOOLKIT_LIBRARIES.get(match["part"], ()):
        library(content, f"{home}/lib64", soname.format(major=major), stub.upstream)


def _nvcc(content: Payload, path: str, upstream: str) -> None:
    upstream = upstream.partition("~")[0]
    release = ".".join(upstream.split(".")[:2])
    content.texts[path] = (program("nvcc").replace("@VERSION@", release).replace("@FULL@", upstream), True)
