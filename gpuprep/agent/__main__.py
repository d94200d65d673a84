"""gpuprep-agent: facts, probes and tuning on the GPU VM itself.

    gpuprep-agent --version
    gpuprep-agent identity           > version and digest of this agent
    gpuprep-agent facts              < request.json  > snapshot.json
    gpuprep-agent probe NAME         < arguments.json > result.json
    gpuprep-agent tune apply|check --settings /etc/gpuprep/tuning.json  > report.json
    gpuprep-agent live               < a line for each answer > a LiveSample a line
    gpuprep-agent whole FOLDER       ends with 0 if FOLDER has exactly the files of its manifest

`facts`, `probe` and `live` take `--expect IDENTITY`: an agent with another identity ends with 97 and prints nothing, so
a controller can check and use the agent in one call.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import List, Optional

from gpuprep import __version__
from gpuprep.agent import host_paths, probereports, probes
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import ReadingFailed
from gpuprep.records import DecodeError, FactsRequest, Missing, from_json, to_json

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:*?~-]{0,99}")  # of what a profile may ask for
PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9._+-]*){1,20}")
FAILED = 3  # not 2, with which argparse ends for a verb that an older agent lacks


def main(argv: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(argv)
    if getattr(options, "expect", None) is not None:
        from gpuprep.agent.identity import OTHER_AGENT, identity

        if options.expect != identity():
            return OTHER_AGENT
    try:
        if options.verb == "identity":
            return _identity()
        if options.verb == "tune":
            return _tune(options.action, options.settings)
        if options.verb == "whole":
            return _whole(options.folder)
        os.chdir("/")  # a user with sudo rights chose the working folder
        children.watch()
        if options.verb == "live":
            return _live()
        return _facts() if options.verb == "facts" else _probe(options.name)
    except (ReadingFailed, DecodeError, OSError) as error:
        print(f"gpuprep-agent: {error}", file=sys.stderr)
        return 2 if options.verb == "tune" else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuprep-agent", description="Facts, probes and tuning on a GPU VM.")
    parser.add_argument("--version", action="version", version=f"gpuprep-agent {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("identity", help="version and digest of this agent's sources")
    facts = verbs.add_parser("facts", help="all facts of this machine; request as JSON on stdin")
    probe = verbs.add_parser("probe", help="one probe; its arguments as JSON on stdin")
    probe.add_argument("name", type=probes.probe)
    live = verbs.add_parser("live", help="current load, clocks and processes, once for each line on stdin")
    for verb in (facts, probe, live):
        verb.add_argument("--expect", metavar="IDENTITY", help=argparse.SUPPRESS)
    tune = verbs.add_parser("tune", help="set or compare persistence, clocks, power limit, ECC, compute mode")
    tune.add_argument("action", choices=("apply", "check"))
    tune.add_argument("--settings", default=host_paths.TUNING, metavar="FILE")
    whole = verbs.add_parser("whole", help="compare an installed folder with its manifest")
    whole.add_argument("folder")
    return parser


def _whole(folder: str) -> int:
    from gpuprep.agent.facts.manifest import is_intact, read_manifest

    manifest = read_manifest(Path(folder))
    intact = is_intact(Path(folder), manifest) if isinstance(manifest, dict) else manifest
    if intact is True:
        return 0
    why = "there is no manifest.json" if intact is None else "files are missing, or are not those that were installed"
    if isinstance(intact, Missing):
        why = f"{intact.reason}: {intact.detail}"
    print(f"gpuprep-agent: {folder}: {why}", file=sys.stderr)
    return 1


def _identity() -> int:
    from gpuprep.agent.identity import identity

    print(identity())
    return 0


def _facts() -> int:
    from gpuprep.agent.facts.system import snapshot

    text = sys.stdin.read()
    request = from_json(FactsRequest, text) if text.strip() else FactsRequest()
    for name in (*request.commands, *request.python_modules, *request.packages):
        if not NAME.fullmatch(name):  # rpm has an option that runs a command
            raise DecodeError(f"{name!r:.80} is no name of a command, module or package")
    for path in request.certificates:
        if not PATH.fullmatch(path):
            raise DecodeError(f"{path!r:.80} is no path of a certificate")
    print(to_json(snapshot(request)))
    return 0


def _probe(name: str) -> int:
    from gpuprep.agent.probes import run_probe

    text = sys.stdin.read()
    arguments = json.loads(text) if text.strip() else {}
    if not isinstance(arguments, dict):
        raise DecodeError("a probe's arguments are an object")
    probereports.begin(bool(arguments.pop("tell", False)))
    print(to_json(run_probe(name, arguments)))
    return 0


def _live() -> int:
    from gpuprep.agent import live

    return live.main()


def _tune(action: str, settings: str) -> int:
    from gpuprep.agent.tuning.tune import main as tune

    return tune(action, settings)


if __name__ == "__main__":
    sys.exit(main())
