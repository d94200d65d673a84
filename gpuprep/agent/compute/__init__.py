"""What do the probes of CUDA need: calls, kernels, libraries, readings during the work?"""
