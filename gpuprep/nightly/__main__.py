"""gpuprep-drift: a GPU machine checks itself, without the controller.

    gpuprep-drift run            run the night check; gpuprep-drift.timer starts it. Needs root
    gpuprep-drift last [--json]  show the newest result and end with its exit code
    gpuprep-drift slurm|npd      the same for a scheduler (hooks.py)

Exit codes: 0 passed, 1 differs from what was certified, 2 wrong command line or no plan file, 3 unknown. `npd`
has its own. Python also ends with 1 if it cannot start a program. So with `run --service` a difference is 10, and
systemd can distinguish the two; for `slurm` and `npd` /usr/local/bin/gpuprep-drift does that (role gpu_agent).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuprep.agent import host_paths
from gpuprep.nightly import journal

# as in records/ended.py, which is not imported, because it may be the module that fails to load
DIFFERS, COULD_NOT_TELL = 1, 3
SERVICE_DIFFERS = 10  # nightly/units.py
NPD_UNKNOWN, NPD_LENGTH = 2, 80  # hooks.py, which may be what does not load

DISK = "see whether the disk is full (df) or read-only (findmnt), then run it again"
REPROVISION = "`gpuprep provision` renews the agent of this host; if that does not help, this line says where it broke"


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; returns its exit code. An error is printed as one line, and its code is neither 0 nor 1."""
    try:
        return _do(argv)
    except Exception as error:  # noqa: BLE001  a library that is gone, a disk that is read-only, an error of ours
        message = str(error) if isinstance(error, OSError) else f"an error inside gpuprep: {journal.where(error)}"
        is_npd = argv[:1] == ["npd"]
        with contextlib.suppress(OSError):  # nobody reads stderr: the exit code still reports it
            if is_npd:
                journal.say(journal.INFO, f"gpuprep UNKNOWN: {ascii(message)[1:-1]}"[:NPD_LENGTH], sys.stdout)
            else:
                hint = DISK if isinstance(error, OSError) else REPROVISION
                journal.say(journal.ERROR, f"Error: {message}; what to do: {hint}", sys.stderr)
        return NPD_UNKNOWN if is_npd else COULD_NOT_TELL


def _do(argv: Sequence[str]) -> int:
    if argv and argv[0] in ("slurm", "npd"):
        from gpuprep.nightly import hooks  # each verb loads what it needs: `last` and the hooks judge nothing

        return hooks.VERBS[argv[0]](argv[1:])
    options = _parser().parse_args(argv)
    folder = {"folder": options.results} if options.results else {}
    if options.verb == "last":
        from gpuprep.nightly import last

        return last.main(as_json=options.json, **folder)
    from gpuprep.agent.programs import children

    children.watch()  # a probe must not outlive a check that is killed; before the rest, so that the watcher is small
    from gpuprep.nightly import run

    plan = {"plan_file": options.plan} if options.plan else {}
    code = run.main(**plan, **folder, patience=run.PATIENCE if options.service else 0)
    if options.service:
        run.tell_again(**plan, **folder)
    return SERVICE_DIFFERS if options.service and code == DIFFERS else code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuprep-drift", description="Is this GPU machine still what was certified?")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="check now, as the timer does every night; needs root")
    run.add_argument("--plan", type=Path, metavar="FILE", help=f"other than {host_paths.DRIFT_PLAN}")
    run.add_argument(
        "--service",
        action="store_true",
        help=f"wait while gpuprep changes this machine; {SERVICE_DIFFERS} instead of {DIFFERS} if something differs",
    )
    last = verbs.add_parser("last", help="show the newest result")
    last.add_argument("--json", action="store_true", help="print the whole record as JSON (docs/records.md)")
    for verb in (run, last):
        verb.add_argument("--results", type=Path, metavar="FOLDER", help=f"other than {host_paths.DRIFT_RESULTS}")
    verbs.add_parser("slurm", help="for Slurm's HealthCheckProgram; see its --help")
    verbs.add_parser("npd", help="for node-problem-detector; see its --help")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
