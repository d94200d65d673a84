"""What the codec probe measured: the parts of the FFmpeg that is on the PATH. docs/records.md, codec."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.records.evidence import NOT_RECORDED, Names
from gpuprep.records.evidence.shared import Probe


@dataclass(frozen=True)
class Codec:
    path: str = ""
    version: str = ""
    encoders: Names = NOT_RECORDED
    decoders: Names = NOT_RECORDED
    filters: Names = NOT_RECORDED
    hwaccels: Names = NOT_RECORDED
    buildconf: Names = NOT_RECORDED  # configure's arguments
    # Records of older agents have none of these.
    muxers: Names = NOT_RECORDED
    demuxers: Names = NOT_RECORDED
    bsfs: Names = NOT_RECORDED
    protocols: Names = NOT_RECORDED
    pix_fmts: Names = NOT_RECORDED
    licence: str = ""  # "GPL version 2 or later"


PROBE = Probe("codec", Codec, 30, "codec", "asking ffmpeg for its parts", measures=False, shares_turn=True)
