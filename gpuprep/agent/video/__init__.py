"""What do the probes of video need: clips, sessions of FFmpeg, the plan of a throughput measurement?"""
