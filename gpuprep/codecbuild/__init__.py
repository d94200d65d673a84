"""How is FFmpeg with NVENC and NVDEC built without a host, for Linux or for Windows?

For machines that gpuprep does not provision. The same sources, parts and programs as the role gpu_codec; the build runs
in a build root of its own on this computer.
"""
