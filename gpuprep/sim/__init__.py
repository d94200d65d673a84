"""Simulated GPU VMs: a rehearsal stage for users, and the stage of gpuprep's own end-to-end tests.

Real Debian, systemd, sshd, apt and drivers in a container; the GPU, the running kernel and NVML are stand-ins.
"""

from gpuprep.sim.machine import Machine, down, machines, target, up

__all__ = ["Machine", "down", "machines", "target", "up"]
