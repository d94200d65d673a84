"""Paths on the host for agent, judges and controller: gpuprep's own, and those that several modules read. No imports.

The roles repeat some of them in YAML; tests/unit/agent/test_host_paths.py compares.
"""

# What the roles write.
TUNING = "/etc/gpuprep/tuning.json"
PROVENANCE = "/etc/gpuprep/provenance.json"
MODULE_OPTIONS = "/etc/modprobe.d/gpuprep-nvidia.conf"
NOUVEAU_BLACKLIST = "/etc/modprobe.d/gpuprep-nouveau.conf"
PERSISTENCE_DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf"
TUNE_UNIT = "/etc/systemd/system/gpuprep-tune.service"
TUNE_RULE = "/etc/udev/rules.d/60-gpuprep-tune.rules"
LOGIN_ENVIRONMENT = "/etc/profile.d/gpuprep.sh"
ENVIRONMENT = "/etc/environment"  # everybody's; a role adds lines
SERVICE_ENVIRONMENT = "/etc/systemd/system.conf.d/gpuprep.conf"
LOADER_LIST = "/etc/ld.so.conf.d/gpuprep.conf"
HOLDS = "/etc/apt/apt.conf.d/52gpuprep-holds"
PIN = "/etc/apt/preferences.d/gpuprep-nvidia"
CUDA_PIN = "/etc/apt/preferences.d/gpuprep-cuda"
DRIVER_STREAM = "/etc/dnf/modules.d/nvidia-driver.module"  # dnf's own; a role has dnf write it
CDI = "/etc/cdi/nvidia.json"  # the Container Device Interface's description of this machine's GPUs
AGENT_HOME = "/opt/gpuprep/agent"
AGENT_LIBRARIES = f"{AGENT_HOME}/current/lib"
AGENT_PROGRAM = "/usr/local/bin/gpuprep-agent"
CUDNN_PREFIX = "/opt/gpuprep/cudnn"
NCCL_PREFIX = "/opt/gpuprep/nccl"
FFMPEG_BUILDS = "/opt/gpuprep/ffmpeg"  # unless the profile has another codec.prefix
PROGRAM_LINKS = "/usr/local/bin"  # of ffmpeg and ffprobe
HEADERS_LINK = "/usr/local/lib/pkgconfig/ffnvcodec.pc"

# What the agent and the controller write.
LOCK = "/run/gpuprep/lock"  # held while gpuprep changes the host
TURN = "/run/gpuprep/turn"  # held by the probe that measures
LOCKED_CLOCKS = "/run/gpuprep/locked-clocks.json"
LEDGER = "/var/lib/gpuprep/before.json"  # what was there before gpuprep; agent/facts/ledger.py
MODULE_CACHE = "/var/lib/gpuprep/modules.json"
CACHE = "/var/cache/gpuprep"  # video clips of the probes
DIGEST_CACHE = "/var/lib/gpuprep/digests.json"
SIGNATURE_CACHE = "/var/lib/gpuprep/signatures.json"

# The way back from a change of the driver.
DRIVER_BEFORE = "/var/lib/gpuprep/driver-before"  # root's alone: the driver that worked
ROLLBACK_PROGRAM = f"{DRIVER_BEFORE}/program.pyz"
ROLLBACK_LOCK = "/run/gpuprep/driver-before.lock"
DRIVER_CHECK_UNIT = "/etc/systemd/system/gpuprep-driver-check.service"
DRIVER_CHECK_LINK = "/etc/systemd/system/multi-user.target.wants/gpuprep-driver-check.service"
SIGNING_SETTINGS = "/etc/dkms/framework.conf.d/gpuprep.conf"

# The nightly check.
DRIFT_PROGRAM = "/usr/local/bin/gpuprep-drift"
DRIFT_PLAN = "/etc/gpuprep/drift.json"
DRIFT_RESULTS = "/var/lib/gpuprep/drift"
DRIFT_LAST = f"{DRIFT_RESULTS}/last.json"
DRIFT_SERVICE_FILE = "/etc/systemd/system/gpuprep-drift.service"
DRIFT_TIMER_FILE = "/etc/systemd/system/gpuprep-drift.timer"
DRIFT_TIMER_LINK = "/etc/systemd/system/timers.target.wants/gpuprep-drift.timer"  # what `systemctl enable` makes
# By its time systemd knows which nights were missed.
DRIFT_TIMER_STAMP = "/var/lib/systemd/timers/stamp-gpuprep-drift.timer"

# Of the system; several modules read them.
PRELOAD = "/etc/ld.so.preload"  # what every program is made to load
PCI_DEVICES = "/sys/bus/pci/devices"
DMI = "/sys/class/dmi/id"
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Simulated machines alone.
SIMULATION_MARK = "/etc/gpuprep-sim"
SIMULATED_GPUS = "/run/gpuprep-sim/nvml"
