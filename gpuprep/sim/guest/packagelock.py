"""Another program that works with the packages for a minute and holds their lock, under a name of its choice.

python3 -m gpuprep.sim.guest.packagelock unattended-upgr
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

APT, DNF = Path("/var/lib/dpkg/lock-frontend"), Path("/var/cache/dnf/metadata_lock.pid")
SECONDS = 60


def main() -> None:
    Path("/proc/self/comm").write_text(sys.argv[1])
    uses_apt = APT.exists()
    with APT.open("r+") if uses_apt else DNF.open("w") as lock:
        if uses_apt:
            fcntl.lockf(lock, fcntl.LOCK_EX)
        else:
            lock.write(str(os.getpid()))
            lock.flush()
        subprocess.run(["systemd-notify", "--ready"], check=True)
        time.sleep(SECONDS)
    DNF.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
