"""What do the probes of video share: clips, sessions of FFmpeg, errors of FFmpeg, the plan of the throughput series?"""
