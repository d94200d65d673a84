"""The state of the driver and of what it hangs on. Changes nothing. Stdlib only, Python 3.9 or newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_state
short_description: Kernels, modules and packages of the NVIDIA driver
version_added: 0.1.0
author: [gpuprep]
description: Reads what runs, what is installed and what the next boot starts; a thing that is not there is an empty string
options:
  modules:
    description: Names of the main kernel module, to be tried in this order.
    type: list
    elements: str
    required: true
  packages:
    description: Names of packages; dpkg-query and rpm take patterns, too.
    type: list
    elements: str
    required: true
  initramfs:
    description: The initramfs of a kernel, as C(/boot/initrd.img-{kernel}).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Read the state of the driver
  gpuprep.gpu.driver_state:
    modules: [nvidia]
    packages: [nvidia-dkms-580, libnvidia-compute-580]
    initramfs: /boot/initrd.img-{kernel}
  register: found
"""

RETURN = r"""
running_kernel:
  description: The kernel that runs.
  type: str
  returned: always
next_kernel:
  description: The kernel that the next boot starts.
  type: str
  returned: always
module:
  description: Version, flavour and wholeness of the module on the disk for the running kernel.
  type: dict
  returned: always
module_next:
  description: The same for the kernel of the next boot.
  type: dict
  returned: always
loaded:
  description: Version, flavour and parameters of the loaded module.
  type: dict
  returned: always
nouveau:
  description: Whether nouveau is loaded.
  type: bool
  returned: always
packages:
  description: Version of each installed package, by name.
  type: dict
  returned: always
packages_present:
  description: Packages that are on the disk, be it half.
  type: list
  returned: always
dkms:
  description: Lines of C(dkms status).
  type: list
  returned: always
initramfs_stale:
  description: Whether the next boot would load what our settings of modprobe forbid.
  type: bool
  returned: always
nvswitches:
  description: How many NVSwitches there are.
  type: int
  returned: always
"""

import platform
import re
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuprep.gpu.plugins.module_utils import bootorder, nextboot


def run(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def module(kernel, names):
    """Version and flavour of the module on disk for a kernel, and whether the one that CUDA needs lies beside it (DKMS sees
    the main one alone). The licence tells open from proprietary.
    """
    for name in names:
        fields = run("modinfo", "-k", kernel, name)
        found = dict(line.partition(":")[::2] for line in reversed(fields.splitlines()) if ":" in line)
        if "version" in found:
            flavour = "open" if "MIT" in found.get("license", "") else "proprietary"
            beside = re.sub(r"\.ko(\.\w+)?$", r"-uvm.ko\1", found.get("filename", "").strip())
            return {"version": found["version"].strip(), "flavour": flavour, "whole": Path(beside).is_file()}
    return {"version": "", "flavour": "", "whole": False}


def loaded():
    text = read("/proc/driver/nvidia/version")
    match = re.search(r"^NVRM version:.*?(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    if not match:
        return {"version": "", "flavour": "", "params": {}}
    params = dict(line.partition(":")[::2] for line in read("/proc/driver/nvidia/params").splitlines())
    return {
        "version": match.group(1),
        "flavour": "open" if "Open Kernel Module" in text else "proprietary",
        "params": {name.strip(): value.strip() for name, value in params.items()},
    }


def packages(names):
    """Name ► (status, version) of all that are on the disk, be it half. rpm knows no halves."""
    if Path("/etc/system-release").exists():
        rows = run("rpm", "-qa", "--qf", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n", *names).splitlines()
        return {name: ("installed", version) for name, version in (row.split("\t") for row in rows)}
    fields = "${db:Status-Status}\t${Package}\t${Version}\n"
    rows = [line.split("\t") for line in run("dpkg-query", "--show", "--showformat=" + fields, *names).splitlines()]
    gone = ("not-installed", "config-files")
    return {name: (status, version) for status, name, version in rows if status not in gone}


def stale_initramfs(image, kernel):
    """Is a file of ours in /etc/modprobe.d newer than the initramfs that should hold it, or nouveau in there without it?"""
    try:
        built = Path(image).stat().st_mtime
    except OSError:
        return False
    if built > time.time():  # the clock was set back since then: its date tells no order
        return True
    if any(conf.stat().st_mtime > built for conf in Path("/etc/modprobe.d").glob("gpuprep-*.conf")):
        return True
    folder = Path("/lib/modules", kernel)
    there = [(folder / file).stat() for file in nextboot.module_files(folder) if (folder / file).exists()]
    newer = any(max(file.st_mtime, file.st_ctime) > built for file in there)
    nouveau = "/nouveau.ko" in read(f"/lib/modules/{kernel}/modules.dep")
    if not newer and not nouveau:
        return False
    listed = run("lsinitramfs" if "/initrd.img-" in image else "lsinitrd", image)
    if newer and re.search(f"/{nextboot.FILE.pattern}$", listed, re.MULTILINE):  # an older one, which would be loaded
        return True
    return nouveau and "/nouveau.ko" in listed and "/modprobe.d/gpuprep-nouveau.conf" not in listed


def next_kernel(running):
    """What the next boot starts. If the boot loader's settings cannot be understood, the newest: it gets a module, too."""
    tree = bootorder.Tree()
    answer = bootorder.next_boot(tree, lambda: run("grubby", "--default-kernel"))
    return answer.kernel or next(iter(bootorder.kernels(tree)), running)


def nvswitches():
    """Bridges (class 0680) of vendor 10de: only an NVSwitch shows as that."""
    found = 0
    for device in Path("/sys/bus/pci/devices").iterdir():
        is_bridge = read(device / "class").startswith("0x0680")
        found += is_bridge and read(device / "vendor").strip() == "0x10de"
    return found


def main():
    asked = AnsibleModule(
        argument_spec={
            "modules": {"type": "list", "elements": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "initramfs": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    running = platform.release()
    newest = next_kernel(running)
    there = packages(asked.params["packages"])
    # Each kernel once: modinfo unpacks the module, which takes seconds, and both are often the same.
    on_disk = {kernel: module(kernel, asked.params["modules"]) for kernel in {running, newest}}
    asked.exit_json(
        running_kernel=running,
        next_kernel=newest,
        module=on_disk[running],
        module_next=on_disk[newest],
        loaded=loaded(),
        nouveau=Path("/sys/module/nouveau").exists(),
        packages={name: version for name, (status, version) in there.items() if status == "installed"},
        packages_present=sorted(there),
        dkms=run("dkms", "status").splitlines(),
        initramfs_stale=stale_initramfs(asked.params["initramfs"].replace("{kernel}", newest), newest),
        nvswitches=nvswitches(),
    )


if __name__ == "__main__":
    main()
