"""Are NVIDIA's kernel modules signed, and by which certificate of this host? Verified with openssl.

A module only claims who signed it, and modinfo prints that claim. So each signature is verified with the certificates
on this host: DKMS's own, Ubuntu's, and the one in the profile. The certificates of other signers (Canonical, Red Hat)
are not on the disk; only the kernel can verify these.
To unpack and verify takes seconds, so results are remembered by file identity, as in modulecache.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.facts import der, nextboot
from gpuprep.agent.facts.driver import module_file
from gpuprep.agent.facts.managed import AGENT_HOME
from gpuprep.agent.facts.modulecache import file_identity
from gpuprep.agent.programs import atomicfile, children, modulesignature
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import (
    Bool,
    DecodeError,
    Missing,
    ModuleCertificate,
    ModuleSignature,
    OptStr,
    SignatureFacts,
    from_json_value,
    to_json_value,
)
from gpuprep.untrusted.limits import file_bytes
from gpuprep.untrusted.plaintext import one_line

CACHE = Path(host_paths.SIGNATURE_CACHE)
LOADED = Path("/sys/module/nvidia/srcversion")
MOST_MODULES = 16  # of one kernel: there are six at most
MOST_CERTIFICATE = 64 * 1024
FIRMWARE = Path("/sys/firmware/efi")
# The keys that shim trusts (MokListRT), and the firmware itself.
MOK_LISTS = ("mok-variables/MokListRT", "efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23")
KEYS_OF_FIRMWARE = "efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
MOST_KEYS = 1024 * 1024
OPENSSL_SECONDS = 60
VERIFY = ("openssl", "cms", "-verify", "-binary", "-inform", "DER", "-nointern", "-noverify", "-out", "/dev/null")
# openssl's messages for a signature of another module or by another key; any other message is an error.
NOT_ASKED = Missing("not_read", "asked only of a signer whose certificate is not on the host")
CHANGED = re.compile(r":(?:CMS_\w+:)?verification failure:|:content verify error:")
PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


@dataclass(frozen=True)
class Certificate:
    path: str
    identity: str
    data: bytes  # DER
    subject: der.Signer


def facts(kernels: Sequence[OptStr], asked: Sequence[str] = (), cache: Path = CACHE) -> SignatureFacts:
    """Signatures of the modules of these kernels; `asked` are the profile's certificates."""
    paths = tuple(dict.fromkeys((*asked, *nextboot.certificates())))
    known = [certificate for certificate in map(_certificate, paths) if isinstance(certificate, Certificate)]
    remembered = _Cache(cache)
    modules = tuple(
        remembered.signature(path, kernel, known)
        for kernel in dict.fromkeys(name for name in kernels if isinstance(name, str))
        for path in modules_of(kernel)
    )
    remembered.keep()
    there = {module.path for module in known}
    shown = tuple(ModuleCertificate(path, enrolled(path)) for path in paths if path in there or path in asked)
    unknown = any(isinstance(module.signer, str) and module.verified_by is None for module in modules)
    return SignatureFacts(modules, shown, _is_loaded(kernels[0]) if unknown else NOT_ASKED)


def modules_of(kernel: str) -> List[Path]:
    """NVIDIA's modules that modprobe would load for a kernel: the main module and those in its folder."""
    main = module_file(kernel)
    if not isinstance(main, str):
        return []
    return sorted(Path(main).parent.glob("nvidia*.ko*"))[:MOST_MODULES]


def enrolled(path: str, firmware: Path = FIRMWARE) -> Bool:
    """Whether mokutil reports the key as enrolled; without mokutil, the firmware's own lists."""
    if not Path(path).is_file():
        return Missing("not_installed", f"there is no file {path}")
    output = run(["mokutil", "--test-key", path], accept=(0, 1, 255), merge_stderr=True)
    if isinstance(output, Missing):
        return _in_lists(path, firmware, output) if output.reason == "command_not_found" else output
    if (said := nextboot.enrolled(output)) is not None:
        return said
    reason = "not_supported" if "not supported" in output else "unparsable"
    return Missing(reason, f"mokutil: {one_line(output.strip(), 200)}")


def _in_lists(path: str, firmware: Path, without: Missing) -> Bool:
    """By the lists of keys themselves, where mokutil is not installed; `without` where they cannot be read."""
    certificate = _certificate(path)
    lists: Dict[str, bytes] = {}
    for name in (*MOK_LISTS, KEYS_OF_FIRMWARE):
        with contextlib.suppress(OSError):
            lists[name] = file_bytes(firmware / name, MOST_KEYS)
    if certificate is None or not any(name in lists for name in MOK_LISTS):
        return without
    return any(certificate.data in keys for keys in lists.values())


def signature(path: Path, kernel: str, known: Sequence[Certificate]) -> ModuleSignature:
    """The signature of one module. Never raises an exception: unknown values are Missing."""

    def of(signer: OptStr, key: OptStr, fits: Union[Bool, None], by: OptStr) -> ModuleSignature:
        return ModuleSignature(str(path), kernel, signer, key, fits, by)

    try:
        with children.scratch("module", modulesignature.room(path)) as folder:
            pkcs7 = modulesignature.split(path, folder / "module")
            if isinstance(pkcs7, Missing):
                return of(pkcs7, pkcs7, pkcs7, pkcs7)
            if pkcs7 is None:
                return of(None, None, None, None)
            who = der.signer(pkcs7)
            fits, by = _verified(folder, pkcs7, who, known)
            return of(one_line(who.name, 120) or who.number, who.number, fits, by)
    except ValueError as error:  # the kernel cannot read it either
        broken = Missing("unparsable", f"the signature of {path.name}: {error}")
        return of(broken, broken, False, None)
    except OSError as error:
        failed = Missing("command_failed", str(error))
        return of(failed, failed, failed, failed)


def _verified(folder: Path, pkcs7: bytes, who: der.Signer, known: Sequence[Certificate]) -> Tuple[Bool, OptStr]:
    """(whether the signature fits this module, path of the certificate that verified it)."""
    answers: List[Tuple[Bool, str]] = []
    (folder / "signature").write_bytes(pkcs7)
    for certificate in known:
        if who.is_of(certificate.subject):
            fits = _openssl(folder, certificate)
            if fits is True:
                return True, certificate.path
            answers.append((fits, certificate.path))
    if answers:
        return answers[0]
    looked = ", ".join(module.path for module in known) or "none was found"
    return Missing("not_installed", f"the certificate of {who.name or who.number} (looked at: {looked})"), None


def _openssl(folder: Path, certificate: Certificate) -> Bool:
    """Whether openssl verifies the signature. The certificate may be untrusted or expired, as for the kernel."""
    text = base64.encodebytes(certificate.data).decode()  # openssl 1.1 reads no DER here
    (folder / "certificate").write_text(f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n")
    files = ("-in", "signature", "-content", "module", "-certfile", "certificate")
    output = run((*VERIFY, *files), timeout=OPENSSL_SECONDS, accept=(0, 4), merge_stderr=True, cwd=str(folder))
    if isinstance(output, Missing):
        return output
    if "erification successful" in output:
        return True
    if CHANGED.search(output):
        return False
    return Missing("command_failed", f"openssl: {one_line(output.strip().rpartition(chr(10))[2], 200)}")


def _certificate(path: str) -> Optional[Certificate]:
    try:
        data = file_bytes(path, MOST_CERTIFICATE)
        armoured = PEM.search(data)
        if armoured:
            data = base64.b64decode(armoured[1])
        return Certificate(path, file_identity(Path(path)) or "", data, der.certificate(data))
    except (OSError, ValueError):  # missing or unreadable: not used for verifying
        return None


def _is_loaded(kernel: OptStr) -> Bool:
    """Whether the loaded module has the same source version as the file; Missing if either is unknown."""
    loaded = read_text(LOADED)
    if not isinstance(loaded, str):
        return loaded if isinstance(loaded, Missing) else Missing("driver_not_loaded", "no srcversion in /sys/module")
    path = module_file(kernel) if isinstance(kernel, str) else None
    source_version = run(["modinfo", "-F", "srcversion", path], timeout=60) if isinstance(path, str) else path
    if not isinstance(source_version, str):
        return source_version or Missing("not_installed", "there is no module for the running kernel")
    return bool(source_version.strip()) and source_version.strip() == loaded.strip()


class _Cache:
    """Results by file and certificates. Results that were Missing are not kept, so they are read again."""

    def __init__(self, path: Path, agent: Path = AGENT_HOME) -> None:
        self._path, self._keeps = path, os.geteuid() == 0 and agent.is_dir()
        self._known = _load(path)
        self._used: Dict[str, ModuleSignature] = {}

    def signature(self, path: Path, kernel: str, known: Sequence[Certificate]) -> ModuleSignature:
        identity = file_identity(path)
        key = "|".join([identity or "", kernel, *(module.identity for module in known)])
        module_signature = self._known.get(key) or signature(path, kernel, known)
        if identity and not isinstance(module_signature.fits, Missing):
            self._used[key] = module_signature
        return module_signature

    def keep(self) -> None:
        if not self._keeps or self._used == self._known:
            return
        with contextlib.suppress(OSError):  # the disk is full or read-only: the next run reads again, in seconds
            atomicfile.shared_folder(self._path.parent)
            atomicfile.write(
                self._path,
                json.dumps({key: to_json_value(module_signature) for key, module_signature in self._used.items()}),
            )


def _load(cache: Path) -> Dict[str, ModuleSignature]:
    text = read_text(cache)
    try:
        document = json.loads(text) if isinstance(text, str) else {}
        return {str(key): from_json_value(ModuleSignature, value) for key, value in document.items()}
    except (ValueError, AttributeError, DecodeError):  # damaged, or of another format: treated as empty
        return {}
