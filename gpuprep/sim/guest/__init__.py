"""Programs that run inside simulated VMs, from a copy of this folder there. Standard library and simstate only."""
