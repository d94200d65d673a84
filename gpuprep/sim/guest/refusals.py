"""What a simulated GPU, or its driver, refuses of a command: the lines that a real ffmpeg prints then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep.sim.guest.mapping import Decode, Encode

# The encoder API of nv-codec-headers ► its minimum Linux driver (from the headers' README files).
MINIMUM_DRIVER = {"11.1": "470.57.02", "12.0": "520.56.06", "12.1": "530.41.03", "12.2": "550.54.14", "13.0": "570.0"}
NVENC_FAILURE, NVDEC_FAILURE = 187, 69  # ffmpeg's exit codes: the low byte of AVERROR_EXTERNAL, of a failed filter
SUBSAMPLING = {
    "yuv420p": "420", "yuvj420p": "420", "nv12": "420", "yuv420p10le": "420-10", "p010le": "420-10", "yuv444p": "444",
    "yuv444p10le": "444-10",
}  # fmt: skip
SMALLEST = {"h264": (145, 49), "hevc": (129, 33), "av1": (160, 64)}  # width, height


@dataclass(frozen=True)
class Refusal:
    """`lines` are (who speaks, text); "" speaks without a place."""

    lines: tuple[tuple[str, str], ...]
    exit_code: int


def no_context(error: str) -> Refusal:
    """CUDA's errors for a GPU that is lost, hidden, or in use."""
    return Refusal(
        (
            ("AVHWDeviceContext", error),
            ("", "Device creation failed: -542398533."),
            ("", "No device available for decoder: device type cuda needed for codec."),
        ),
        NVENC_FAILURE,
    )


def lost_meanwhile() -> Refusal:
    return Refusal(
        (
            ("AVHWFramesContext", "cu->cuCtxPushCurrent(hwctx->cuda_ctx) failed -> CUDA_ERROR_UNKNOWN: unknown error"),
            ("", "Conversion failed!"),
        ),
        NVENC_FAILURE,
    )


def of_library(name: str, encoder: bool, coder: str) -> Refusal:
    needs = "nvenc" if encoder else "nvdec"
    return Refusal(
        (
            (coder, f"Cannot load {name}"),
            (coder, f"The minimum required Nvidia driver for {needs} is 530.41.03 or newer"),
            ("", "Error while opening encoder - maybe incorrect parameters such as bit_rate, rate, width or height."),
        ),
        255,
    )


def of_decode(decode: Decode, video: Mapping[str, Any]) -> Refusal | None:
    """What NVDEC says to a stream that it cannot decode."""
    codec = decode.media.codec
    formats = video.get("formats", {}).get(codec, [])
    if SUBSAMPLING.get(decode.media.pixel_format, "") in formats:
        return None
    if decode.decoder:
        return Refusal(((decode.decoder, f"Codec {decode.decoder} is not supported with this chroma format"),), 218)
    return Refusal(
        (
            (codec, "Hardware is lacking required capabilities"),
            (codec, "Failed setup for format cuda: hwaccel initialisation returned error."),
            (codec, f"Your platform doesn't support hardware accelerated {codec.upper()} decoding."),
            ("", "Error while filtering: Function not implemented"),
            ("", "Conversion failed!"),
        ),
        NVDEC_FAILURE,
    )


def of_driver(encode: Encode, headers: str, driver: str) -> Refusal | None:
    """A driver whose encoder API is older than the headers that ffmpeg was built with."""
    if _numbers(headers) <= _numbers(driver):
        return None
    return Refusal(
        (
            (
                encode.encoder,
                f"Driver does not support the required nvenc API version. Required: {headers} Found: {driver}",
            ),
            (
                encode.encoder,
                f"The minimum required Nvidia driver for nvenc is {MINIMUM_DRIVER.get(headers, '(unknown)')} or newer",
            ),
            *_not_opened(encode),
        ),
        218,
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2] if part.isdigit()]


def of_encode(encode: Encode, video: Mapping[str, Any]) -> Refusal | None:
    """What NVENC says to settings that it has not."""
    if not video.get("encoders"):
        return _encoder(encode, "OpenEncodeSessionEx failed: unsupported device (2): (no details)")
    features = video.get("features", {}).get(encode.codec)
    if features is None:
        return _encoder(encode, "Codec not supported", "Provided device doesn't support required NVENC features")
    lack = _first_lack(encode, features, int(video.get("max_b_frames", {}).get(encode.codec, 0)))
    if lack:
        return _encoder(encode, lack, "Provided device doesn't support required NVENC features")
    least = SMALLEST[encode.codec]
    if encode.width and (encode.width < least[0] or encode.height < least[1]):
        small = "InitializeEncoder failed: invalid param (8): Frame Dimension less than the minimum supported value."
        return _encoder(encode, small)
    return None


def _first_lack(encode: Encode, features: Sequence[str], most_b_frames: int) -> str:
    """The first capability that is missing, in ffmpeg's order (nvenc_check_capabilities)."""
    options = encode.options
    lookahead = next((options[name] for name in ("rc-lookahead", "rc_lookahead") if name in options), "0")
    temporal = next((options[name] for name in ("temporal-aq", "temporal_aq") if name in options), "0")
    if "444" in encode.pixel_format and "444" not in features:
        return "YUV444P not supported"
    if encode.b_frames > most_b_frames:
        return f"Max B-frames {encode.b_frames} exceed {most_b_frames}"
    if "10" in encode.pixel_format and "10bit" not in features:
        return "10 bit encode not supported"
    if lookahead not in ("0", "-1") and "lookahead" not in features:
        return "RC lookahead not supported"
    if temporal not in ("0", "false") and "temporal_aq" not in features:
        return "Temporal AQ not supported"
    if options.get("b_ref_mode", "disabled") not in ("disabled", "0", "-1") and "b_ref" not in features:
        return "B frames as references are not supported"
    return ""


def no_session(encode: Encode) -> Refusal:
    """The session limit."""
    return _encoder(encode, "OpenEncodeSessionEx failed: out of memory (10): (no details)")


def _encoder(encode: Encode, *message: str) -> Refusal:
    lines = tuple((encode.encoder, text) for text in message)
    return Refusal((*lines, (encode.encoder, "No capable devices found"), *_not_opened(encode)), NVENC_FAILURE)


def _not_opened(encode: Encode) -> tuple[tuple[str, str], ...]:
    return (
        (
            f"vost#0:0/{encode.encoder}",
            "Error while opening encoder - maybe incorrect parameters such as bit_rate, rate, width or height.",
        ),
        ("", "Conversion failed!"),
    )
