"""The options that a recorded run was started with.

    RecordedOptions.read(record.options).quick      True, False, or None where the record does not have it

Other versions of gpuprep wrote other options, and a record may come from a file: an option of another type counts as
not recorded. Except where a run could then pass with less: any value of --only or --skip means that a part of the
machine was left out, and unreadable `probes` mean all that the profile wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

# Names of --only and --skip, in the order in which their roles run: "driver" is the role gpu_driver.
STEPS = ("driver", "agent", "tuning", "cuda", "cudnn", "nccl", "codec", "containers", "extras")


@dataclass(frozen=True)
class Asked:
    """What the user typed; all empty for a run of an older gpuprep, or one that no user started."""

    hosts: tuple[str, ...] = ()
    inventory: str = ""
    limit: str = ""
    profile: str = ""
    ssh_key: str = ""
    store: str = ""
    accept_new_host_key: bool = False
    ask_become_pass: bool = False

    @classmethod
    def read(cls, asked: Any) -> Asked:
        if not isinstance(asked, Mapping):
            return cls()
        texts = {
            key: text
            for key in ("inventory", "limit", "profile", "ssh_key", "store")
            if isinstance(text := asked.get(key), str)
        }
        return cls(
            hosts=_names(asked.get("hosts")),
            **texts,
            accept_new_host_key=asked.get("accept_new_host_key") is True,
            ask_become_pass=asked.get("ask_become_pass") is True,
        )


@dataclass(frozen=True)
class RecordedOptions:
    """None: the record does not have this option."""

    whole: bool  # neither --only nor --skip left a part of the machine out
    only: tuple[str, ...]
    skip: tuple[str, ...]
    every_probe: bool  # no probes were chosen: all that the profile wants
    probes: Optional[tuple[str, ...]]  # (): all
    check: Optional[bool]
    deep: Optional[bool]
    quick: Optional[bool]
    first_failure: Optional[bool]
    fix: Optional[bool]
    probe: Optional[str]  # of drift: "none", "quick"
    random_delay_minutes: Optional[float]  # of a nightly check
    asked: Asked

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> RecordedOptions:
        """`options` as a record has them. Raises nothing."""
        delay = options.get("random_delay_minutes")
        probe = options.get("probe")
        return cls(
            whole=not options.get("only") and not options.get("skip"),
            only=_names(options.get("only")),
            skip=_names(options.get("skip")),
            every_probe=not options.get("probes"),
            probes=_names(options["probes"]) if "probes" in options else None,
            check=_flag(options.get("check")),
            deep=_flag(options.get("deep")),
            quick=_flag(options.get("quick")),
            first_failure=_flag(options.get("first_failure")),
            fix=_flag(options.get("fix")),
            probe=probe if isinstance(probe, str) else None,
            random_delay_minutes=delay if isinstance(delay, (int, float)) and not isinstance(delay, bool) else None,
            asked=Asked.read(options.get("asked")),
        )

    @property
    def pace(self) -> tuple[Optional[bool], Optional[bool], Optional[bool], Optional[str]]:
        """The options that decide how long a step takes."""
        return self.check, self.deep, self.quick, self.probe


def _flag(value: Any) -> Optional[bool]:
    return value if isinstance(value, bool) else None


def _names(listed: Any) -> tuple[str, ...]:
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, (list, tuple)) else ()
