"""The agent: all that runs on the GPU VM. Imports records, errors, the stdlib and pynvml; probes the CUDA bindings."""
