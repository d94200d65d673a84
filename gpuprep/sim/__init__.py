"""How can users rehearse, and our end-to-end tests run, without a GPU? With simulated GPU VMs.

Real Debian, systemd, sshd, apt and drivers in a container; the GPU, the running kernel and NVML are stand-ins.
"""

from gpuprep.sim.machine import Machine, down, machines, target, up

__all__ = ["Machine", "down", "machines", "target", "up"]
