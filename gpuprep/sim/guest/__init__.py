"""Which programs stand in for ffmpeg inside a simulated VM? They run from a copy of this folder there.

Standard library and simstate only.
"""
