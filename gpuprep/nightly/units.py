"""The files of the night check on the host, and the texts of its two systemd units.

The service must see the machine as every program sees it. systemd's sandboxes (ProtectSystem, PrivateTmp,
ProtectKernelLogs, ProtectClock and others) give a unit its own mounts and device rules, and the check would judge
those. So only limits without them are used: capabilities, system calls, address families. Not used: NoNewPrivileges
(`drift.notify.command` could send no mail) and MemoryDenyWriteExecute (CUDA could compile nothing). The service keeps
the capabilities SYS_MODULE and MKNOD, with which nvidia-modprobe makes missing devices, and SYSLOG, for the Xids.
"""

from __future__ import annotations

import re

from gpuprep.agent import host_paths
from gpuprep.desired.profile import DriftWish

SERVICE, TIMER = "gpuprep-drift.service", "gpuprep-drift.timer"
METRICS = "gpuprep.prom"  # in the profile's drift.textfile_directory
METRICS_FOLDER = "/var/lib/prometheus/node-exporter"  # where profiles say no other; Debian's node_exporter reads it

AT = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")

# What neither a check nor a notice needs. Newer ones are not named: systemd before 247 does not know them.
_CAPABILITIES = (
    "CAP_AUDIT_CONTROL", "CAP_BLOCK_SUSPEND", "CAP_LEASE", "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE",
    "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_BOOT", "CAP_SYS_PACCT", "CAP_SYS_RAWIO", "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG", "CAP_WAKE_ALARM",
)  # fmt: skip

_SERVICE = f"""\
# Written by `gpuprep drift schedule`; `gpuprep drift unschedule` removes it.
[Unit]
Description=Is this GPU machine still what gpuprep certified?
ConditionPathExists={host_paths.DRIFT_PLAN}
# A missed night is caught up at boot: only after boot has finished, including the tuning.
After=multi-user.target nvidia-persistenced.service gpuprep-tune.service

[Service]
Type=oneshot
ExecStart={host_paths.DRIFT_PROGRAM} run --service
# Exit code 10 means a difference: the check did its work, and drift.notify reports the result.
SuccessExitStatus=10
TimeoutStartSec=2h
Nice=19
IOSchedulingClass=idle
UMask=0022
KeyringMode=private
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
CapabilityBoundingSet=~{" ".join(_CAPABILITIES)}
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""

_TIMER = """\
# Written by `gpuprep drift schedule`; `gpuprep drift unschedule` removes it.
[Unit]
Description=gpuprep's nightly check of this machine

[Timer]
OnCalendar=*-*-* {at}:00
RandomizedDelaySec={delay}m
AccuracySec=1s
# In the night in which summer time begins the set time may not exist, and systemd leaves that night out. In all
# others the set time comes first.
OnUnitInactiveSec=25h
# A night that was missed is caught up after boot, once, after another random delay.
Persistent=true

[Install]
WantedBy=timers.target
"""


def files(wish: DriftWish) -> dict[str, str]:
    """Path on the host ─► text of the unit."""
    return {
        host_paths.DRIFT_SERVICE_FILE: _SERVICE,
        host_paths.DRIFT_TIMER_FILE: _TIMER.format(at=wish.at, delay=wish.random_delay_minutes),
    }
