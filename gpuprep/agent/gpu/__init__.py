"""What does NVML report about each GPU? On simulated machines `simgpu` and `simstate` take the place of the GPU."""
