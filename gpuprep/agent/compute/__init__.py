"""Shared by the CUDA probes: calls of the driver, kernels, loaded libraries, readings during a measurement."""
