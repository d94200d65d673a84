"""Are PSNR and XPSNR (dB) of an output and its source possible? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprep.agent.probes.transcodeproof import IDENTICAL_DB

APART_DB = 25.0  # PSNR and XPSNR of the same pictures differ less


def impossible(psnr: float | None, xpsnr: float | None, *, lossy: bool) -> Iterator[str]:
    """Why the figures are impossible. For identical pictures FFmpeg prints "inf" and the probes write IDENTICAL_DB.
    `lossy`: an encoder or a scaler changed the pictures.
    """
    for name, value in (("PSNR", psnr), ("XPSNR", xpsnr)):
        if value is not None and not 0 <= value <= IDENTICAL_DB:
            yield f"a {name} of {value:g} dB is recorded, and 0 to {IDENTICAL_DB:g} can be"
    if psnr is None:
        return
    if psnr >= IDENTICAL_DB:
        if lossy:
            yield "its pictures are reported as identical with the source's, but an encoder or scaler changes them"
        if xpsnr is not None and xpsnr < IDENTICAL_DB:
            yield f"identical pictures (PSNR) are reported with an XPSNR of {xpsnr:g}"
    elif xpsnr is not None and abs(psnr - xpsnr) > APART_DB:
        yield f"PSNR {psnr:g} and XPSNR {xpsnr:g} dB are of different pictures"
