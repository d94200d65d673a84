"""Secure Boot: would the kernel accept the driver's modules, now and at the next boot? By verified signatures.

With Secure Boot on, a module that is not signed, was changed, or has a key that is not enrolled is FAIL. With Secure
Boot off the kernel accepts any module; but an invalid signature means that the module was changed: WARN.
If a profile names a key (driver.signing), the modules must be signed with it, whether Secure Boot is on or not.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpuprep.checks.common import skip, unknown
from gpuprep.desired.host_rules import certificate
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, ModuleSignature, SignatureFacts, Snapshot, Status

ROLE = "gpu_driver"
SUBJECT = "driver"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """A finding for the running kernel, and for the next boot's if it differs; none for a kernel without modules."""
    kernel, facts = snapshot.kernel, snapshot.signatures
    if isinstance(facts, Missing):  # with Secure Boot off, an older record needs no signatures
        if kernel.secure_boot is not True or not isinstance(snapshot.driver.module_version, str):
            return []
        expected, what = "signed with an enrolled key", "the modules' signatures"
        return [unknown(SUBJECT, "signature", facts, expected=expected, what=what)]
    signature_findings = []
    for prop, name in (("signature", kernel.running), ("signature_next_boot", kernel.next_boot)):
        modules = [module for module in facts.modules if module.kernel == name]
        if modules and not (prop != "signature" and name == kernel.running):
            signature_findings.append(_Judge(wanted, snapshot, facts, prop, modules).finding())
    return signature_findings


class _Judge:
    """Judges the modules of one kernel together: the finding is that of the worst module."""

    def __init__(
        self, wanted: Wanted, snapshot: Snapshot, facts: SignatureFacts, prop: str, modules: Sequence[ModuleSignature]
    ) -> None:
        self.facts, self.prop, self.modules = facts, prop, modules
        self.on = snapshot.kernel.secure_boot
        self.dkms = snapshot.driver.dkms
        self.wish = wanted.driver.signing
        self.prebuilt = wanted.driver.prebuilt
        self.path = certificate(self.wish, snapshot)
        self.kernel = modules[0].kernel
        self.by_wish = f"signed for {self.path}" if self.wish else ""
        self.expected = self.by_wish or ("signed with an enrolled key" if self.on is True else "accepted by the kernel")

    def finding(self) -> Finding:
        return (
            self._changed()
            or self._wrong_key()
            or self._unsigned()
            or self._unread()
            or (self._off() if self.on is False else self._foreign() or self._enrolled())
        )

    # ------------------------------------------------ what is wrong with a module, worst first

    def _changed(self) -> Finding | None:
        changed = [module for module in self.modules if module.fits is False]
        if not changed:
            return None
        why = f"the signature of {_names(changed)} is invalid: the module was changed after it was signed"
        effect = "Secure Boot is off, so the kernel accepts it" if self.on is False else "the kernel refuses it"
        remedy = f"find out who changed it; {self._rebuild(changed)}"
        status = Status.WARN if self.on is False and not self.wish else Status.FAIL
        return self._say(status, f"invalid: {_names(changed)}", f"{why}; {effect}", remedy, ROLE if self.wish else "")

    def _wrong_key(self) -> Finding | None:
        """The finding if modules are not signed with the profile's key; None without such a key."""
        others = [module for module in self.modules if module.fits is not None and module.verified_by != self.path]
        unread = [module for module in others if isinstance(module.fits, Missing) and module.verified_by is not None]
        if not self.wish or not others or unread:
            return None
        signers = (
            ", ".join(sorted({str(module.signer) for module in others if isinstance(module.signer, str)}))
            or "another key"
        )
        why = f"the profile wants modules that are signed for {self.path}, and {_names(others)} is signed by {signers}"
        return self._say(Status.FAIL, f"signed by {signers}: {_names(others)}", why, "", ROLE)

    def _unsigned(self) -> Finding | None:
        unsigned = [module for module in self.modules if module.signer is None]
        if not unsigned:
            return None
        actual = f"not signed: {_names(unsigned)}"
        if self.wish:
            why = f"the profile wants modules that are signed for {self.path}, and {_names(unsigned)} is not signed"
            return self._say(Status.FAIL, actual, why, "", ROLE)
        if self.on is True:
            why = f"Secure Boot is on and {_names(unsigned)} is not signed: the kernel {self.kernel} refuses it"
            return self._say(Status.FAIL, actual, why, self._repair(unsigned))
        if isinstance(self.on, Missing):
            return self._unread_of(self.on, "whether Secure Boot is on")
        if len(unsigned) < len(self.modules):
            why = (
                f"{_names(unsigned)} has no signature, and the other modules have one: the module was changed, or "
                "its signature was removed"
            )
            return self._say(Status.WARN, actual, why, f"find out who changed it; {self._rebuild(unsigned)}")
        return self._say(Status.PASS, "not signed; Secure Boot is off")

    def _unread(self) -> Finding | None:
        """UNKNOWN for a signature that could not be read, except if only its signer's certificate is missing."""
        unread = [module for module in self.modules if isinstance(module.fits, Missing) and not _is_foreign(module)]
        first = next((module.fits for module in unread if isinstance(module.fits, Missing)), None)
        if first is None:
            return None
        if self.on is False and not self.wish:
            detail = first.detail or first.reason
            reason = f"Secure Boot is off, and the signature of {_names(unread)} was not verified ({detail})"
            return skip(SUBJECT, self.prop, expected=self.expected, actual="not verified", reason=reason)
        return self._unread_of(first, f"the signature of {_names(unread)}")

    # ------------------------------------------------ every signature is valid, or its signer is unknown

    def _off(self) -> Finding:
        by = ", ".join(sorted({module.verified_by for module in self.modules if isinstance(module.verified_by, str)}))
        foreign = [module for module in self.modules if _is_foreign(module)]
        if foreign:
            reason = f"Secure Boot is off, and there is no certificate on the host of {foreign[0].signer}"
            return skip(SUBJECT, self.prop, expected=self.expected, actual="not verified", reason=reason)
        return self._say(Status.PASS, f"verified with {by}; Secure Boot is off")

    def _foreign(self) -> Finding | None:
        """The finding for modules signed by Canonical or Red Hat: their certificate is in the kernel and in no file."""
        foreign = [module for module in self.modules if _is_foreign(module)]
        if not foreign:
            return None
        signer = str(foreign[0].signer)
        accepted = self.prop == "signature" and self.on is True and self.facts.loaded_of_file is True
        if accepted:
            reason = (
                f"signed by {signer}, whose certificate is in no file of the host. The kernel has loaded a module of"
                " these sources with Secure Boot on; whether the file was changed since, only the kernel can tell"
            )
            return skip(SUBJECT, self.prop, expected=self.expected, actual=f"signed by {signer}", reason=reason)
        why = f"{_names(foreign)} is signed by {signer}, and no certificate on the host is that signer's"
        remedy = (
            'load the module (a reboot): if the kernel accepts it, the signature is right. If it says "Key was rejected'
            f' by service", {self._repair(foreign)}'
        )
        return self._say(Status.UNKNOWN, f"signed by {signer}", why, remedy)

    def _enrolled(self) -> Finding:
        used = list(dict.fromkeys(one.verified_by for one in self.modules if isinstance(one.verified_by, str)))
        state = {one.path: one.enrolled for one in self.facts.certificates}
        shown = ", ".join(used)
        for path in used:
            enrolled = state.get(path, Missing("not_read"))
            if enrolled is False:
                why = f"the modules are signed for {path}, which is not enrolled: the kernel refuses them"
                actual = f"verified with {shown}, not enrolled"
                status = Status.FAIL if self.on is True else Status.UNKNOWN
                return self._say(status, actual, why, self._enrol(path))
            if isinstance(enrolled, Missing):
                tool = " (package mokutil)" if enrolled.reason == "command_not_found" else ""
                return self._unread_of(
                    enrolled, f"whether {path} is enrolled", f"install mokutil{tool}, then look again"
                )
        return self._say(Status.PASS, f"verified with {shown}, enrolled")

    # ------------------------------------------------ words

    def _say(self, status: Status, actual: str, why: str = "", remedy: str = "", role: str = "") -> Finding:
        remedy = remedy or ("`gpuprep provision HOST --profile PROFILE --only driver`" if role else "")
        return Finding(SUBJECT, self.prop, status, self.expected, actual, why, remedy, role)

    def _unread_of(self, reading: Missing, what: str, remedy: str = "") -> Finding:
        advice = remedy or "install openssl and, for modules that end in .zst, zstd; then look again"
        return unknown(SUBJECT, self.prop, reading, expected=self.expected, remedy=advice, what=what)

    def _rebuild(self, modules: Sequence[ModuleSignature]) -> str:
        kernel = shlex.quote(modules[0].kernel)  # the host chose the name, and people paste this command
        if self.prebuilt and not self.wish:
            if any(name.startswith("kmod-") for name in self.prebuilt):
                return f"install the module's package again: sudo dnf reinstall {' '.join(self.prebuilt)}"
            return (
                "install the module's package again: sudo apt-get install --reinstall NAME; `dpkg -l "
                "'linux-modules-nvidia-*'` shows the package of this kernel"
            )
        known = [one for one in self.dkms if one.module.startswith("nvidia")]
        if self.wish or not known:  # without its sources DKMS builds nothing
            return "`gpuprep provision HOST --profile PROFILE --only driver` builds and signs it again"
        built = [one for one in known if one.kernel == modules[0].kernel]
        name = shlex.quote("{0.module}/{0.version}".format((built or known)[0]))
        remove = f"`sudo dkms remove {name} -k {kernel}`, then " if built else ""
        return f"build and sign it again: {remove}`sudo dkms install --force {name} -k {kernel}`"

    def _repair(self, modules: Sequence[ModuleSignature]) -> str:
        """The remedy: rebuild, and enrol the key; not for prebuilt modules, whose key is in the kernel."""
        return self._rebuild(modules) if self.prebuilt else f"{self._rebuild(modules)}; {self._enrol()}"

    def _enrol(self, path: str = "") -> str:
        path = shlex.quote(path or self.path)
        return (
            f"enrol the key if it is not: `sudo mokutil --import {path}`, reboot, confirm it at the machine's console"
        )


def _is_foreign(module: ModuleSignature) -> bool:
    return isinstance(module.signer, str) and module.verified_by is None and isinstance(module.fits, Missing)


def _names(modules: Sequence[ModuleSignature]) -> str:
    return ", ".join(module.path.rpartition("/")[2] for module in modules)
