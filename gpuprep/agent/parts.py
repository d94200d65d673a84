"""Patterns of the files of the package `gpuprep` that go to a GPU machine. The role gpu_agent also reads this file."""

# Facts, probes and tuning: sent along to a machine without an agent. Python 3.9 or newer, stdlib and pynvml;
# psutil where it is installed, as it is beside an installed agent.
STREAMED = (
    "__init__.py", "agent/**/*.py", "untrusted/*.py",
    "records/__init__.py", "records/cloudnames.py", "records/serialize.py", "records/gpu.py", "records/live.py",
)  # fmt: skip
# The way back from a change of the driver: one file on the host, apart from the agent, which the same run replaces.
ROLLBACK = (
    "__init__.py", "agent/__init__.py", "agent/host_paths.py", "agent/rollback/*.py", "agent/programs/__init__.py",
    "agent/programs/atomicfile.py", "agent/gpu/__init__.py", "agent/gpu/simstate.py",
)  # fmt: skip
# Judgement, for the nightly check on the machine itself. PyYAML and prometheus-client too, Python 3.10 or newer.
JUDGING = (
    "catalogue/*.py",
    "catalogue/*.yml",
    "checks/**/*.py",
    "desired/*.py",
    "errors.py",
    "nightly/*.py",
    "performance/*.py",
    "records/*.py",
    "records/evidence/*.py",
)
INSTALLED = (*STREAMED, *JUDGING)
