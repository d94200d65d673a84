"""Secure Boot in a simulated machine: modules that DKMS really built and signed, with DKMS's key and with the user's.

The signatures, Debian's DKMS, sign-file of linux-kbuild and openssl are real. The firmware is not: a file stands in for
its variable, and a script for mokutil, which says what a list says. The simulated kernel takes any module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import Done, fresh, gpuprep, inside, must

PROFILE = """\
extends: base
description: Secure Boot
driver: {{source: nvidia, version: "580"{signing}}}
cuda: {{version: none}}
cudnn: {{version: none}}
codec: {{ffmpeg: none}}
extras: {{tools: []}}
"""
SIGNING = ", signing: {key: /etc/mok/MOK.priv, certificate: /etc/mok/MOK.der}"
MACHINE = "e2e-secureboot"
HOST = f"sim:{MACHINE}"
MODULES = "/lib/modules/$(uname -r)/updates/dkms"
MOKUTIL = """\
cat > /usr/local/bin/mokutil <<'END'
#!/bin/sh
case "$1" in
  --sb-state) echo "SecureBoot enabled" ;;
  --test-key)
    if grep -qsxF "$2" /etc/enrolled-keys; then echo "$2 is already enrolled"; exit 1; fi
    echo "$2 is not enrolled" ;;
esac
END
chmod 755 /usr/local/bin/mokutil
"""
KEY = """\
mkdir -p /etc/mok && cd /etc/mok && openssl req -new -x509 -nodes -days 3650 -newkey rsa:2048 \
  -subj "/CN=our fleet key/" -keyout MOK.priv -outform DER -out MOK.der 2>/dev/null && chmod 600 MOK.priv
"""

pytestmark = [pytest.mark.e2e, pytest.mark.only_all]


@pytest.fixture(scope="module")
def machine() -> Iterator[str]:
    with fresh(MACHINE, "debian12", ["t4"]) as machine:
        yield machine


def profile(folder: Path, signing: str = "") -> str:
    path = folder / f"secure{'-signed' if signing else ''}.yml"
    path.write_text(PROFILE.format(signing=signing))
    return str(path)


def signature(wish: str, prop: str = "signature") -> dict[str, Any]:
    (run,) = gpuprep("drift", HOST, "--profile", wish, "--json").json()["runs"]
    (found,) = [one for one in run["findings"] if one["property"] == prop]
    assert isinstance(found, dict)
    return found


def said(done: Done) -> str:
    return " ".join(done.text.split())


def test_secure_boot(machine: str, tmp_path: Path) -> None:
    plain, wish = profile(tmp_path), profile(tmp_path, SIGNING)
    must("sim", "fault", machine, "secure_boot")
    inside(machine, MOKUTIL + KEY)

    # Refused before any change: no key that DKMS will sign with is enrolled.
    for which, key in ((plain, "host.secure_boot"), (wish, "driver.signing")):
        refused = gpuprep("provision", HOST, "--profile", which)
        assert refused.exit_code == 2
        assert f"{key}: Secure Boot is on" in said(refused)
        assert "mokutil --import" in said(refused)
    assert inside(machine, "ls /etc/dkms /etc/modprobe.d/gpuprep-nvidia.conf", check=False).exit_code != 0

    # An enrolled key of the profile's: built, signed and verified with it.
    inside(machine, "echo /etc/mok/MOK.der > /etc/enrolled-keys")
    must("provision", HOST, "--profile", wish)
    must("sim", "fault", machine, "secure_boot")  # provisioning restarted the machine
    found = signature(wish)
    assert (found["status"], found["actual"]) == ("PASS", "verified with /etc/mok/MOK.der, enrolled")
    assert inside(machine, f"modinfo -F signer {MODULES}/nvidia.ko").stdout.strip() == "our fleet key"
    settings = inside(machine, "stat -c '%U %a' /etc/dkms/framework.conf.d/gpuprep.conf").stdout.strip()
    assert settings == "root 644"
    (again,) = must("provision", HOST, "--profile", wish, "--json").json()["runs"]
    assert again["playbook"]["status"] == "not needed"
    (deep,) = must("provision", HOST, "--profile", wish, "--deep", "--json").json()["runs"]
    assert deep["playbook"]["changed"] == 0

    # One byte of a module, a module that was cut, a key that was revoked: drift finds each.
    inside(machine, f"cp -a {MODULES} /root/modules; printf X | dd of={MODULES}/nvidia.ko bs=1 seek=900 conv=notrunc")
    assert signature(wish)["actual"] == "invalid: nvidia.ko"
    assert signature(plain)["status"] == "FAIL"
    inside(machine, f"cp -a /root/modules/nvidia.ko {MODULES}/; truncate -s -3 {MODULES}/nvidia-uvm.ko")
    assert signature(wish)["actual"] == "not signed: nvidia-uvm.ko"
    inside(machine, f"cp -a /root/modules/. {MODULES}/; : > /etc/enrolled-keys")
    assert signature(wish)["actual"] == "verified with /etc/mok/MOK.der, not enrolled"
    inside(machine, "echo /etc/mok/MOK.der > /etc/enrolled-keys")

    # Modules that another key signed are built and signed again.
    inside(
        machine,
        f"cp {MODULES}/nvidia.ko /root/good.ko; printf X | dd of={MODULES}/nvidia.ko bs=1 seek=900 conv=notrunc",
    )
    must("provision", HOST, "--profile", wish)
    assert signature(wish)["status"] == "PASS"

    # DKMS only warns where it cannot sign; the role does not believe it.
    kbuild = "/usr/lib/linux-kbuild-*/scripts/sign-file"
    inside(machine, f"chmod 644 {kbuild}; truncate -s -3 {MODULES}/nvidia.ko")
    failed = gpuprep("provision", HOST, "--profile", wish)
    assert failed.exit_code not in (0, 2)
    assert "These modules are not signed for /etc/mok/MOK.der" in said(failed)
    inside(machine, f"chmod 755 {kbuild}")

    # What the role refuses of a key, before anything is built.
    for command, words in {
        "chmod 640 /etc/mok/MOK.priv": "nobody else may read it",
        "chmod 600 /etc/mok/MOK.priv; cp /etc/mok/MOK.priv /root; openssl genrsa -out /etc/mok/MOK.priv 2048":
            "their public keys differ",
    }.items():  # fmt: skip
        inside(machine, command)
        assert words in said(gpuprep("provision", HOST, "--profile", wish))
    inside(machine, "cp /root/MOK.priv /etc/mok/MOK.priv; chmod 600 /etc/mok/MOK.priv")
    must("provision", HOST, "--profile", wish)

    # Secure Boot off: a changed module of a profile without a key is a warning.
    inside(machine, f"umount /sys/firmware; printf X | dd of={MODULES}/nvidia.ko bs=1 seek=900 conv=notrunc")
    found = signature(plain)
    assert (found["status"], found["actual"]) == ("WARN", "invalid: nvidia.ko")
    assert "Secure Boot is off" in found["reason"]
