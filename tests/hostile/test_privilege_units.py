"""What gpuprep's units may do: limited, and without hiding from the check what it is to see."""

from __future__ import annotations

import re

import pytest
from places import COLLECTION

from gpuprep.agent import host_paths
from gpuprep.desired import loading
from gpuprep.nightly import units

TEMPLATES = COLLECTION / "roles/gpu_tuning/templates"
NIGHTLY = units.files(loading.load("t4").drift)[host_paths.DRIFT_SERVICE_FILE]
TUNE = (TEMPLATES / "gpuprep-tune.service.j2").read_text()
DAEMON = (TEMPLATES / "persistenced.conf.j2").read_text()


def settings(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("capability", ["CAP_SYS_TIME", "CAP_SYS_BOOT", "CAP_SYS_RAWIO", "CAP_NET_ADMIN", "CAP_NET_RAW",
                                        "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", "CAP_AUDIT_CONTROL"])  # fmt: skip
def test_no_unit_has_what_it_does_not_need(capability: str) -> None:
    nightly = settings(NIGHTLY)["CapabilityBoundingSet"]
    assert nightly.startswith("~")
    assert capability in nightly.lstrip("~").split()
    assert capability not in settings(TUNE)["CapabilityBoundingSet"].split()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *((NIGHTLY, name) for name in ("RestrictNamespaces", "RestrictRealtime", "LockPersonality")),
        *((TUNE, name) for name in ("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality")),
        *((TUNE, name) for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelTunables")),
        *((DAEMON, name) for name in ("PrivateTmp", "ProtectHome", "ProtectKernelLogs", "RestrictNamespaces")),
    ],
)  # fmt: skip
def test_a_limit_is_on(text: str, name: str) -> None:
    assert settings(text)[name] == "yes"
    assert settings(text)["SystemCallArchitectures"] == "native"


# Each gives a unit mounts or devices of its own (systemd.exec(5)): the check would judge those.
OWN_VIEW = [
    "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules",
    "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectProc", "PrivateNetwork", "PrivateUsers",
    "DeviceAllow", "DevicePolicy", "ReadOnlyPaths", "InaccessiblePaths", "DynamicUser", "User",
    "NoNewPrivileges", "MemoryDenyWriteExecute",
]  # fmt: skip


@pytest.mark.parametrize("name", OWN_VIEW)
def test_the_nightly_check_sees_the_machine_as_it_is(name: str) -> None:
    assert name not in settings(NIGHTLY)


@pytest.mark.parametrize(
    "name", ["ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow", "PrivateUsers", "User"]
)
def test_tuning_reaches_the_gpus(name: str) -> None:
    assert name not in settings(TUNE)
    assert name not in settings(DAEMON)
    assert "CAP_SYS_ADMIN" in settings(TUNE)["CapabilityBoundingSet"].split()
