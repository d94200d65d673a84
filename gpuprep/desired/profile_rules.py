"""Impossible combinations: each refusal has the key, the reason, and the nearest combination that works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuprep import catalogue
from gpuprep.catalogue import Model
from gpuprep.catalogue import ffmpeg as build
from gpuprep.desired.profile import Profile

OPEN, PROPRIETARY = "open", "proprietary"


class Refusal(NamedTuple):
    """`key` is the profile's key path ("driver.flavour"), or the part of the host that prevents it ("host.gpus")."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


def refuse(key: str, reason: str, works: str) -> Refusal:
    """`works` is the nearest thing that works: never empty."""
    return Refusal(key, f"{reason}; works: {works}")


def check_profile(profile: Profile) -> list[Refusal]:
    """Refusals of what none of the profile's GPU models can have. Needs no host."""
    models = [catalogue.models()[name] for name in profile.gpus if name in catalogue.models()]
    unknown = [name for name in profile.gpus if name not in catalogue.models()]
    refusals = [
        refuse("gpus", f"the catalogue has no GPU model {name!r}", f"one of {listed(catalogue.models())}")
        for name in unknown
    ]
    each = [silicon(profile, [model]) for model in models]
    everywhere = set.intersection(*({refusal.key for refusal in of_model} for of_model in each)) if each else set()
    refusals += [refusal for of_model in each for refusal in of_model if refusal.key in everywhere]
    wished = None if profile.driver.version == "auto" else profile.driver.version
    refusals += driver_rules(profile, wished, None if profile.cuda.version == "auto" else profile.cuda.version)
    refusals += codec_rules(profile)
    refusals += parts_that_need_others(profile)
    return refusals


class Works(NamedTuple):
    """What one host can have instead of what is refused; "" if no host is known."""

    driver: str = ""
    cuda: str = ""


def silicon(profile: Profile, models: Sequence[Model], works: Works | None = None) -> list[Refusal]:
    """Refusals of what these GPUs can never have, on any host."""
    works = works or Works()
    refusals: list[Refusal] = []
    for model in models:
        limits = catalogue.limits(model.architecture)
        family = f"{model.title} ({model.architecture.title()})"
        flavour, driver = profile.driver.flavour, profile.driver.version
        cuda, cudnn = profile.cuda.version, profile.cudnn.version
        if flavour == OPEN and OPEN not in limits.module_flavours:
            refusals.append(
                refuse(
                    "driver.flavour",
                    f"{family} cannot use the open kernel modules, which need Turing or newer",
                    "proprietary, or auto",
                )
            )
        if flavour == PROPRIETARY and PROPRIETARY not in limits.module_flavours:
            refusals.append(
                refuse("driver.flavour", f"{family} works with the open kernel modules only", "open, or auto")
            )
        if driver != "auto" and limits.maximum_branch and catalogue.branch(driver) > limits.maximum_branch:
            last = limits.maximum_branch
            reason = f"R{last} is the last driver branch for {family}, not {driver}"
            refusals.append(refuse("driver.version", reason, works.driver or f"{last}"))
        if driver != "auto" and catalogue.branch(driver) < limits.minimum_branch:
            refusals.append(
                refuse(
                    "driver.version",
                    f"{family} needs driver branch {limits.minimum_branch} or newer, not {driver}",
                    works.driver or f"{limits.minimum_branch} or newer, or auto",
                )
            )
        if cuda not in ("auto", "none"):
            refusals += _cuda_limits(cuda, family, limits, works.cuda)
        if cudnn not in ("auto", "none") and limits.maximum_cudnn and above(cudnn, limits.maximum_cudnn):
            reason = f"cuDNN {limits.maximum_cudnn} is the last one for {family}, not {cudnn}"
            refusals.append(refuse("cudnn.version", reason, nearest_cudnn(limits.maximum_cudnn)))
        if profile.codec.nvenc == "required" and model.nvenc_engines == 0:
            reason = f"{model.title} has no NVENC engine: it decodes ({model.nvdec_engines} NVDEC) and cannot encode"
            refusals.append(refuse("codec.nvenc", reason, "auto on this GPU; NVENC is on " + listed(_encoders())))
        if profile.tuning.mig not in ("keep", "disabled") and catalogue.has_mig(model) is False:
            have_it = listed(m.title for m in catalogue.models().values() if catalogue.has_mig(m))
            refusals.append(refuse("tuning.mig", f"{family} has no MIG", f"keep; MIG is on {have_it}"))
    return refusals


def _encoders() -> list[str]:
    return [model.title for model in catalogue.models().values() if model.nvenc_engines]


def _cuda_limits(cuda: str, family: str, limits: catalogue.Limits, works: str) -> list[Refusal]:
    version = catalogue.parse(cuda)
    if limits.maximum_cuda and version > catalogue.parse(limits.maximum_cuda):
        reason = f"CUDA {limits.maximum_cuda} is the last one for {family}, not {cuda}"
        return [refuse("cuda.version", reason, works or f"{limits.maximum_cuda} or older, or auto")]
    if version < catalogue.parse(limits.minimum_cuda):
        reason = f"the first CUDA for {family} is {limits.minimum_cuda}, not {cuda}"
        return [refuse("cuda.version", reason, works or f"{limits.minimum_cuda} or newer, or auto")]
    return []


def mig_that_fits(wish: Mapping[str, int], offered: Sequence[str]) -> str:
    """Why a GPU with these profiles cannot be cut so; "" where that is not seen. Where instances may lie is not looked
    at: the driver knows it."""
    unknown = sorted(set(wish) - set(offered))
    if unknown:
        return f"has no MIG profile {', '.join(unknown)}"
    whole, smallest = max(offered, key=_slices), min(offered, key=_gigabytes)
    shared = round(_gigabytes(whole) / _gigabytes(smallest))  # slices of memory
    memory = sum(count * round(_gigabytes(name) / _gigabytes(smallest)) for name, count in wish.items())
    computing = sum(count * _slices(name) for name, count in wish.items())
    if computing > _slices(whole) or memory > shared:
        return (
            f"has {_slices(whole)} slices of computing and {shared} of memory: these instances need {computing} and"
            f" {memory}"
        )
    return ""


def _slices(name: str) -> int:
    return int(name.partition("g")[0])


def _gigabytes(name: str) -> int:
    return int(name.partition(".")[2].partition("gb")[0])


def above(version: str, last: str) -> bool:
    """Whether `version` is newer than `last`. 9.10.2.21 is not above 9.10.2: it is a build of that release."""
    limit = catalogue.parse(last)
    return catalogue.parse(version)[: len(limit)] > limit


def nearest_cudnn(maximum: str) -> str:
    """The newest cuDNN in the catalogue that is not above `maximum` ("9.10.2")."""
    fitting = [v for v in catalogue.cudnn_checksums() if not above(v, maximum)]
    return max(fitting, key=catalogue.parse) if fitting else "none"


def driver_rules(profile: Profile, driver: str | None, cuda: str | None, works: Works | None = None) -> list[Refusal]:
    """Refusals of what needs a newer driver than `driver` (exact version or branch; None: not known yet)."""
    works = works or Works()
    refusals: list[Refusal] = []
    headers = profile.codec.headers
    if driver is None:
        return refusals
    if profile.driver.flavour == PROPRIETARY and catalogue.branch(driver) >= catalogue.open_only_from_branch():
        first = catalogue.open_only_from_branch()
        reason = f"from R{first} on there are no proprietary kernel modules, wished with driver {driver}"
        refusals.append(refuse("driver.flavour", reason, f"open, or a branch before {first}"))
    if profile.codec.ffmpeg != "none":
        minimum = catalogue.headers_minimum_driver(headers)
        if minimum is not None and older(driver, minimum):
            reason = f"nv-codec-headers {headers} need driver {minimum} or newer, and the driver is {driver}"
            refusals.append(refuse("codec.headers", reason, _headers_for(driver)))
    if cuda is not None and cuda != "none":
        lowest = catalogue.cuda_minimum_branch(cuda)
        if lowest is not None and catalogue.branch(driver) < lowest:
            reason = f"CUDA {cuda} needs driver branch {lowest} or newer, and the driver is {driver}"
            refusals.append(refuse("cuda.version", reason, works.cuda or _cuda_for(driver)))
    return refusals


def older(driver: str, minimum: str) -> bool:
    """Whether `driver` is certainly below `minimum`: a branch without minor version counts as its newest version."""
    have, need = catalogue.parse(driver), catalogue.parse(minimum)
    return have < need[: len(have)]


def _headers_for(driver: str) -> str:
    fitting = [
        version
        for version in catalogue.source("nv_codec_headers")
        if not older(driver, catalogue.headers_minimum_driver(version) or "0")
    ]
    if fitting:
        return f"headers {max(fitting, key=catalogue.parse)}"
    return "a newer driver branch, or codec.ffmpeg: none"


def _cuda_for(driver: str) -> str:
    majors = [m for m in (11, 12, 13) if (catalogue.cuda_minimum_branch(str(m)) or 0) <= catalogue.branch(driver)]
    return f"CUDA {max(majors)}, or auto" if majors else "auto"


def codec_rules(profile: Profile) -> list[Refusal]:
    """Refusals if FFmpeg does not fit nv-codec-headers or npp."""
    codec = profile.codec
    if codec.ffmpeg == "none":
        return []
    refusals: list[Refusal] = []
    known = catalogue.source("ffmpeg")
    accepts = catalogue.ffmpeg_accepts(codec.ffmpeg, codec.headers)
    if accepts is False:
        refusals.append(
            refuse(
                "codec.headers",
                f"FFmpeg {codec.ffmpeg} refuses nv-codec-headers {codec.headers}: it takes {_ranges(codec.ffmpeg)}",
                _pair_that_works(),
            )
        )
    if codec.ffmpeg not in known:
        reason = f"the catalogue has no FFmpeg {codec.ffmpeg} (its tarball's sha256 is not known)"
        refusals.append(refuse("codec.ffmpeg", reason, listed(known)))
    if codec.headers not in catalogue.source("nv_codec_headers") and accepts is not False:
        reason = f"the catalogue has no nv-codec-headers {codec.headers} (their sha256 is not known)"
        refusals.append(refuse("codec.headers", reason, listed(catalogue.source("nv_codec_headers"))))
    removed, cuda_below = catalogue.npp_limits()
    if codec.npp and catalogue.parse(codec.ffmpeg) >= catalogue.parse(removed):
        reason = f"FFmpeg {removed} removed libnpp's filters, and {codec.ffmpeg} is wanted"
        refusals.append(refuse("codec.npp", reason, "npp: false with scale_cuda, or FFmpeg 7.1.5"))
    for name in codec.parts.get("filters", ()):
        since = build.commands()["filters"]["gpu"].get(name, {}).get("since")
        if since and catalogue.parse(codec.ffmpeg) < catalogue.parse(since):
            reason = f"FFmpeg has the filter {name} since {since}, and {codec.ffmpeg} is wanted"
            refusals.append(refuse("codec.parts", reason, f"a list without {name}"))
    refusals += _library_rules(profile)
    cuda = profile.cuda.version
    if codec.npp and cuda not in ("auto", "none") and catalogue.parse(cuda) >= catalogue.parse(cuda_below):
        reason = f"FFmpeg's configure refuses the libnpp of CUDA {cuda_below} and later, and {cuda} is wanted"
        refusals.append(refuse("codec.npp", reason, "npp: false with scale_cuda, or CUDA 12"))
    return refusals


def _library_rules(profile: Profile) -> list[Refusal]:
    """Refusals if a part of FFmpeg lacks its library, or if licences of linked libraries do not fit."""
    codec, refusals = profile.codec, []
    tls = [name for name in codec.libraries if name in build.tls()]
    if len(tls) > 1:
        reason = f"FFmpeg takes one TLS library, and {' and '.join(tls)} are wanted"
        refusals.append(refuse("codec.libraries", reason, f"{tls[0]} alone"))
    for kind, names in codec.parts.items():
        for name in names:
            needs = build.needed(kind, name)
            if needs and not set(needs) & set(codec.libraries):
                reason = f"the {kind.removesuffix('s')} {name} needs {' or '.join(needs)}, and codec.libraries lacks it"
                works = f"codec.libraries with {needs[0]}, or codec.parts without {name}"
                refusals.append(refuse("codec.parts", reason, works))
    gpl = [name for name in codec.libraries if build.libraries()[name].licence == "GPL"]
    if codec.npp and gpl:
        reason = (
            f"libnpp is nonfree and {' and '.join(gpl)} are under the GPL: their licences forbid both in one program"
        )
        refusals.append(refuse("codec.npp", reason, "npp: false with scale_cuda"))
    drawn = [name for name in codec.parts.get("filters", ()) if name == "drawtext"]
    if drawn and "harfbuzz" not in codec.libraries and "freetype" in codec.libraries:
        reason = "the filter drawtext needs harfbuzz and freetype"
        refusals.append(refuse("codec.libraries", reason, "codec.libraries with harfbuzz"))
    return refusals


def parts_that_need_others(profile: Profile) -> list[Refusal]:
    """Refusals of parts of the profile that need another part which the profile leaves out."""
    refusals = []
    if profile.codec.npp and profile.cuda.version == "none" and profile.codec.ffmpeg != "none":
        refusals.append(refuse("codec.npp", "libnpp comes with CUDA, and cuda.version is none", "cuda.version: auto"))
    if profile.codec.npp and profile.driver.source == "nvidia" and profile.codec.ffmpeg != "none":
        reason = "FFmpeg is linked with the distribution's libnpp, which would mix with NVIDIA's toolkit"
        refusals.append(refuse("codec.npp", reason, "npp: false with scale_cuda, or driver.source: distribution"))
    if profile.cudnn.version not in ("none", "auto") and profile.cuda.version == "none":
        refusals.append(
            refuse(
                "cudnn.version",
                "cuDNN needs CUDA, and cuda.version is none",
                "cuda.version: auto, or cudnn.version: none",
            )
        )
    if profile.nccl.version not in ("none", "auto") and profile.cuda.version == "none":
        reason, works = "NCCL needs CUDA, and cuda.version is none", "cuda.version: auto, or nccl.version: none"
        refusals.append(refuse("nccl.version", reason, works))
    if isinstance(profile.tuning.mig, dict) and profile.tuning.compute_mode != "default":
        reason = "a GPU with MIG on has the compute mode default"
        refusals.append(refuse("tuning.compute_mode", reason, "compute_mode: default, or mig: keep"))
    if profile.driver.modules == "prebuilt" and profile.driver.signing is not None:
        reason = "prebuilt kernel modules are signed by who built them, and driver.signing names a key for DKMS"
        refusals.append(refuse("driver.signing", reason, "signing: null, or driver.modules: dkms"))
    wants_npp_filter = "scale_npp" in profile.codec.parts.get("filters", ())
    if wants_npp_filter and not profile.codec.npp and profile.codec.ffmpeg != "none":
        refusals.append(
            refuse(
                "codec.parts", "the filter scale_npp needs libnpp, and codec.npp is false", "scale_cuda, or npp: true"
            )
        )
    return refusals


def _pair_that_works() -> str:
    pairs = [
        f"FFmpeg {ffmpeg} with headers {headers}"
        for ffmpeg in catalogue.source("ffmpeg")
        for headers in catalogue.source("nv_codec_headers")
        if catalogue.ffmpeg_accepts(ffmpeg, headers)
    ]
    return " or ".join(pairs)


def _ranges(ffmpeg: str) -> str:
    parts = []
    for allowed in catalogue.ffmpeg_headers(ffmpeg) or ():
        end = f" and below {allowed['below']}" if "below" in allowed else " or newer"
        parts.append(f"{allowed['at_least']}{end}")
    return ", or ".join(parts)


def listed(names: Iterable[str]) -> str:
    items = list(names)
    if len(items) < 2:
        return "".join(items) or "none"
    return ", ".join(items[:-1]) + " or " + items[-1]
