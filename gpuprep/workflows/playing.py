"""Runs one of gpuprep's playbooks on the host of a run, and ends what it started there if the user stops it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuprep.provisioning import ansible_run
from gpuprep.records import PlaybookResult
from gpuprep.remote import leftovers
from gpuprep.workflows.runs import Options, Run


def played(
    run: Run,
    book: str,
    variables: Mapping[str, Any],
    options: Options,
    *,
    roles: Sequence[str] = (),
    units: tuple[str, ...] = (),
) -> PlaybookResult | ansible_run.Failure:
    """The outcome, which is in the draft, too. `units`: those of the host that outlive a connection, not the user."""

    def end_leftovers() -> None:
        if run.host is not None and (left := leftovers.end(run.host, run.run_id, units)):
            run.stage(f"a package manager ends by itself what it has begun there: {left}")

    outcome = ansible_run.run(
        run.target,
        roles=roles,
        variables=variables,
        check=options.check,
        diff=options.diff,
        become_password=options.become_password,
        sudo=run.host.sudo if run.host else "",
        accept_new_host_key=options.accept_new_host_key,
        log_dir=run.log_dir,
        on_event=run.tell,
        cancelled=run.cancelled,
        on_cancel=end_leftovers,
        playbook=book,
        verbosity=options.verbosity,
    )
    if isinstance(outcome, ansible_run.Failure):
        run.draft.playbook, run.draft.reboot_needed = outcome.result, outcome.reboot_needed
    else:
        run.draft.playbook = outcome
    return outcome
