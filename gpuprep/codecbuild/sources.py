"""The tarballs of a build: fetched once, trusted only by their sha256; a signature is fetched each time."""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuprep import catalogue
from gpuprep.catalogue import roles
from gpuprep.desired.profile import CodecWish
from gpuprep.errors import GpuprepError
from gpuprep.paths import cache_dir
from gpuprep.untrusted.masking import masked, masked_url, remember
from gpuprep.untrusted.plaintext import one_line

MOST_BYTES = 256 << 20
MOST_SIGNATURE_BYTES = 64 << 10
SILENT_SECONDS = 60
TOTAL_SECONDS = 1800.0  # FFmpeg's 11 MB take that long at 6 kB/s
Progress = Callable[[str], None]


def fetch(
    codec: CodecWish,
    mirrors: Mapping[str, str],
    progress: Progress,
    known: Callable[[str], Mapping[str, catalogue.Source]] = catalogue.source,
) -> dict[str, Path]:
    """The name in the build folder ► the file here: ffmpeg.tar, ffmpeg.tar.asc and headers.tar. Raises GpuprepError."""
    ffmpeg, signature = tarball("ffmpeg", codec.ffmpeg, mirrors, progress, known=known)
    (headers,) = tarball("nv_codec_headers", codec.headers, mirrors, progress, known=known)
    return {"ffmpeg.tar": ffmpeg, "ffmpeg.tar.asc": signature, "headers.tar": headers}


def tarball(
    kind: str,
    version: str,
    mirrors: Mapping[str, str],
    progress: Progress,
    *,
    folder: Path | None = None,
    known: Callable[[str], Mapping[str, catalogue.Source]] = catalogue.source,
) -> list[Path]:
    """The tarball of "ffmpeg" or "nv_codec_headers" in `folder`; after FFmpeg's its signature. Raises GpuprepError."""
    source = known(kind)[version]
    url, place = _mirrored(source.url, mirrors.get(kind)), folder or cache_dir() / "sources"
    files = [_file(url, source.sha256, place, progress)]
    if kind == "ffmpeg":  # the build checks it with FFmpeg's release key
        files.append(_file(f"{url}.asc", (), place, progress))
    return files


def _mirrored(url: str, mirror: str | None) -> str:
    return f"{mirror.rstrip('/')}/{url.rpartition('/')[2]}" if mirror else url


def _file(url: str, known: tuple[str, ...], folder: Path, progress: Progress) -> Path:
    """`known`: the sha256 that are right; (): a signature, which only the build can check."""
    path = folder / url.rpartition("/")[2]
    if known and path.is_file() and digest(path) in known:
        return path
    remember(url)
    shown = masked_url(url)
    progress(f"fetching {shown}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _within(TOTAL_SECONDS, lambda: _download(url, temporary, MOST_BYTES if known else MOST_SIGNATURE_BYTES))
        checksum = digest(temporary)
        if known and checksum not in known:
            raise GpuprepError(
                f"{shown} has the sha256 {checksum}, and {' or '.join(known)} is wanted", "try another mirror"
            )
        temporary.rename(path)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an invalid address
        if not known and path.is_file():  # a broken one is replaced as soon as a mirror answers
            return path
        reason = one_line(masked(str(getattr(error, "reason", error) or type(error).__name__)), 300)
        raise GpuprepError(f"{shown} could not be fetched: {reason}", "set a mirror: docs/mirrors.md") from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _download(url: str, target: Path, room: int) -> None:
    opener = urllib.request.build_opener(_KnownHosts())
    most = room
    try:
        answer = opener.open(url, timeout=SILENT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()  # it has the connection
        raise
    with answer, target.open("wb") as file:
        while block := answer.read1(1 << 20):
            room -= len(block)
            if room < 0:
                size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
                raise GpuprepError(f"{masked_url(url)} is larger than {size}", "is the mirror right?")
            file.write(block)


class _KnownHosts(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to the same host, and to where this host is known to keep its files."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        was, to = urlsplit(req.full_url), urlsplit(newurl)
        known = to.hostname in roles.redirects().get(was.hostname or "", ()) and to.port in (None, 443)
        same = to.hostname == was.hostname and to.port in (was.port, None)
        if not (known or same) or to.scheme not in (was.scheme, "https"):
            fp.close()
            what = f"{masked_url(req.full_url)} leads to {one_line(masked_url(newurl), 200)}, which is not followed"
            raise GpuprepError(what, "name a mirror that has the file itself: docs/mirrors.md")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Raises TimeoutError where `work` takes longer: urllib limits only the silence between two bytes."""
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="download", daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it did not arrive within {seconds:g} s") from None
    if error is not None:
        raise error


def digest(path: Path) -> str:
    return sha256(path.read_bytes())


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
