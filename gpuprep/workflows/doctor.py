"""`gpuprep doctor`: what is wrong with machines, or what a pasted log says. Changes nothing."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuprep import doctor
from gpuprep.agent import host_paths
from gpuprep.doctor import NEEDED, Examined
from gpuprep.errors import HostError, HostLocked, NoPrivilege
from gpuprep.records import FactsRequest, Missing, ProbeResult, Snapshot, Source
from gpuprep.records.evidence import is_missing, missing_of
from gpuprep.remote import Host, Target, agent_client

SECONDS = 60.0
FORKS = 10


def of_log(text: str) -> Examined:
    return Examined("", False, {"log": text}, {}, tuple(doctor.diagnose({"log": text})))


def of_hosts(
    targets: Sequence[Target],
    *,
    become_password: str | None = None,
    accept_new_host_key: bool = False,
    forks: int | None = None,
) -> list[Examined]:
    """Each host in the order given. A host that cannot be examined says why; the others go on."""

    def examine(target: Target) -> Examined:
        try:
            with Host(target, become_password=become_password, accept_new_host_key=accept_new_host_key) as host:
                return _of_host(host)
        except HostError as error:
            what = error.what.removeprefix(f"{target.name}: ") + (f"; {error.hint}" if error.hint else "")
            return Examined(target.name, target.simulated, {}, {}, (), what)

    with ThreadPoolExecutor(min(len(targets), forks or FORKS)) as pool:
        return list(pool.map(examine, targets))


def _of_host(host: Host) -> Examined:
    refused, in_use = {}, ""
    try:
        snapshot, logs = _read(host, become=True)
        host.check_free()
    except HostLocked as held:
        in_use = f"\nfacts: {held.what}"
    except NoPrivilege:  # most can be read by anybody
        snapshot, logs = _read(host, become=False)
        refused = {"what only root may read": "the login user may not use sudo without a password (-K asks for it)"}
    from gpuprep.doctor import facts

    texts, unread = _texts({} if isinstance(logs.values, Missing) else logs.values)
    unread |= refused
    texts["facts"] = facts.lines(snapshot) + in_use
    system = doctor.DNF if snapshot.apt is None else doctor.APT
    of_facts = [*facts.of_gpus(snapshot), *facts.of_next_boot(snapshot)]
    found = [*doctor.diagnose(_counting(snapshot, texts), system), *of_facts]
    found.sort(key=doctor.rank)
    named = [dataclasses.replace(each, do=tuple(_with_host(step, host.name) for step in each.do)) for each in found]
    return Examined(host.name, snapshot.source is Source.SIMULATED, texts, unread, tuple(named))


def _read(host: Host, *, become: bool) -> tuple[Snapshot, ProbeResult]:
    """The facts and the logs, at the same time; meanwhile the rules are read here."""
    request = FactsRequest(prefixes=(host_paths.FFMPEG_BUILDS,))
    with ThreadPoolExecutor(2) as beside:
        facts = beside.submit(agent_client.snapshot, host, request, become=become, alone=True)
        logs = beside.submit(agent_client.probe, host, "logs", {}, become=become, timeout=SECONDS, at_once=True)
        import gpuprep.doctor.facts  # noqa: F401  loaded now: it takes as long as the host's answer

        doctor.rules()
        return facts.result(), logs.result()


def _with_host(step: str, host: str) -> str:
    return re.sub(r"\bHOST\b", lambda _: shlex.quote(host), step)


def _texts(values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The texts that a host sent, and why others could not be read."""
    sent = values.get("texts")
    texts, unread = {}, {}
    for name, text in sent.items() if isinstance(sent, dict) else ():
        if isinstance(text, str):
            texts[name] = text
        elif is_missing(text):
            missing = missing_of(text)
            if missing.reason != "command_not_found":
                unread[name] = missing.detail or missing.reason
            elif name in NEEDED:
                texts[name] = f"{name}: command not found"
    unread |= {name: "the host did not send it" for name in NEEDED if name not in texts and name not in unread}
    return texts, unread


def _counting(snapshot: Snapshot, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts that count. While the driver works, what the kernel said of loading it is of the past."""
    if isinstance(snapshot.gpus, Missing) or not snapshot.gpus:
        return dict(texts)
    of_the_past = ("make.log", "nvidia-installer.log", "dkms")
    kept = {name: text for name, text in texts.items() if name not in of_the_past}
    kept["kernel"] = "\n".join(line for line in texts.get("kernel", "").splitlines() if doctor.HARDWARE.search(line))
    return kept
