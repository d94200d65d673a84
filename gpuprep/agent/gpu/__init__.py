"""What does NVML say of each GPU? `simgpu` and `simstate` are the stand-ins of simulated machines."""
