"""What do the probes of CUDA share: calls of the driver, kernels, loaded libraries, readings during a measurement?"""
