"""What are the facts of a GPU VM, how fast is it, and how is it tuned? Runs on the VM itself.

Imports records, untrusted, the stdlib and pynvml; a probe imports the CUDA bindings itself.
"""
