"""Shared by the video probes: clips, sessions of FFmpeg, errors of FFmpeg, the plan of the throughput series."""
