"""The nightly check's files on the host, and the texts of its two systemd units. Pure.

The service sees the machine as every program does: systemd's sandboxes give a unit mounts and device rules of its own,
and the check would judge those. NoNewPrivileges would take mail from `drift.notify.command`.
"""

from __future__ import annotations

import re

from gpuprep.wishes import DriftWish

PLAN = "/etc/gpuprep/drift.json"
RESULTS = "/var/lib/gpuprep/drift"
LAST = f"{RESULTS}/last.json"
PROGRAM = "/usr/local/bin/gpuprep-drift"
SERVICE, TIMER = "gpuprep-drift.service", "gpuprep-drift.timer"
SERVICE_FILE, TIMER_FILE = f"/etc/systemd/system/{SERVICE}", f"/etc/systemd/system/{TIMER}"
WANTED_BY = f"/etc/systemd/system/timers.target.wants/{TIMER}"  # what `systemctl enable` makes
STAMP = f"/var/lib/systemd/timers/stamp-{TIMER}"  # by its time systemd knows which nights were missed
METRICS = "gpuprep.prom"  # in the profile's drift.textfile_directory
METRICS_FOLDER = "/var/lib/prometheus/node-exporter"  # where profiles say no other; Debian's node_exporter reads it

AT = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
# A day's check that waits longer would run into the next one.
MOST_DELAY_MINUTES = 720

_SERVICE = f"""\
# Written by `gpuprep drift schedule`; `gpuprep drift unschedule` removes it.
[Unit]
Description=Is this GPU machine still what gpuprep certified?
ConditionPathExists={PLAN}
# A night that is caught up at boot: only when boot has done what it does, the tuning too.
After=multi-user.target nvidia-persistenced.service gpuprep-tune.service

[Service]
Type=oneshot
ExecStart={PROGRAM} run --service
# It differs from what was certified: the check has done its work; who wants to know is told (drift.notify).
SuccessExitStatus=10
TimeoutStartSec=1h
Nice=19
IOSchedulingClass=idle
UMask=0022
KeyringMode=private
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
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
        SERVICE_FILE: _SERVICE,
        TIMER_FILE: _TIMER.format(at=wish.at, delay=wish.random_delay_minutes),
    }
