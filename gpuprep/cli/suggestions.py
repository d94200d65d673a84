"""Proposes gpuprep's word for one of another program: `--port`, `--user`, `trend`.

click proposes what is spelt alike, which is wrong for these words: `--port` is like `--store`. Read only after a
mistake, because it imports every command.
"""

from __future__ import annotations

from difflib import get_close_matches

import click

# Words of ssh, Ansible, make and web servers ► what gpuprep has for them, as the end of "write ...".
OPTIONS: dict[tuple[str, ...], str] = {
    ("--port", "--bind", "--address", "--host", "--addr"): "--listen ADDRESS:PORT",
    ("--user", "--ssh-user", "--remote-user", "--login", "-u", "-l"): "USER@HOST",
    ("--ssh-port", "--port", "-P"): "USER@HOST:PORT",
    ("--hosts", "--host", "-H"): "HOST without an option",
    ("--key", "--private-key", "--identity", "--identity-file", "--ssh-private-key", "-i"): "--ssh-key FILE",
    ("--dry-run", "--dryrun", "-n", "-C"): "--check",
    ("--jobs", "--parallel", "--workers", "--threads", "-j", "-f"): "--forks N",
    ("--out", "--file", "--output-file", "-o"): "--output FILE",
    ("--tags", "--tag", "--probe", "--probes", "-t"): "--only NAME",
    ("--skip-tags", "--exclude", "--without"): "--skip NAME",
    ("--assumeyes", "--assume-yes", "-y"): "--yes",
    ("--debug", "--details", "--all", "-vv"): "--verbose",
    ("--silent",): "--quiet",
}
COMMANDS = {
    "provision": ("install", "setup", "apply", "deploy", "bootstrap"),
    "validate": ("test", "verify", "bench", "benchmark", "measure"),
    "drift": ("check",),
    "doctor": ("diagnose", "troubleshoot"),
    "history": ("list", "ls", "runs", "log"),
    "report": ("show", "results"),
    "compare": ("diff",),
    "watch": ("top", "monitor", "smi"),
    "serve": ("web", "dashboard", "ui"),
}
# By group: words of virsh, docker, vagrant, git and others ► what to write after the group's name.
SUBCOMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "sim": {
        "up": ("start", "boot", "create", "run", "new", "add"),
        "down --keep": ("stop", "shutdown", "halt", "poweroff", "suspend", "pause"),
        "down": ("rm", "remove", "delete", "destroy", "kill"),
        "exec": ("ssh", "shell", "console", "enter", "login", "attach"),
        "list": ("ls", "ps", "status", "show"),
        "fault": ("break", "inject"),
    },
    "profiles": {
        "list": ("ls",),
        "show": ("cat", "view", "print", "get"),
        "check": ("lint", "validate", "verify", "test"),
        "new": ("create", "init", "add", "write", "make"),
    },
    "baseline": {"show": ("list", "ls", "get"), "set": ("save", "store", "update"), "clear": ("rm", "delete", "reset")},
    "trace": {"report": ("show", "open", "view", "analyze", "analyse"), "record": ("capture", "profile", "run")},
    "codec": {"check": ("test", "verify", "parse"), "build": ("make", "compile")},
}
ALIKE = 0.85  # likeness of two spellings above which it is a typing error: `--hosts` for `--host`


def option(error: click.NoSuchOption) -> str:
    """The message for an option that the command does not have."""
    command = error.ctx.command if error.ctx is not None else None
    if command is None or get_close_matches(error.option_name, error.possibilities or (), cutoff=ALIKE):
        return error.format_message()
    has = {name for each in command.params if isinstance(each, click.Option) for name in each.opts}
    takes = {each.make_metavar(error.ctx) for each in command.params if isinstance(each, click.Argument)}  # type: ignore[arg-type]
    takes_host = any("HOST" in word for word in takes)
    for words, means in OPTIONS.items():
        first = means.partition(" ")[0]
        fits = first in has if first.startswith("-") else takes_host
        if error.option_name in words and fits:
            return f"{error.message} Write {means} instead."
    return error.format_message()


def command(group: click.Group, context: click.Context, word: str) -> str:
    """What `gpuprep WORD` should be: "history trend", "serve"; "" where nobody knows."""
    for name, others in COMMANDS.items():
        if word in others:
            return name
    subcommands = []
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        if isinstance(inner, click.Group) and word in inner.list_commands(context):
            subcommands.append(f"{name} {word}")
    near = get_close_matches(word, group.list_commands(context), n=1)
    return subcommands[0] if len(subcommands) == 1 else "".join(near)


def subcommand(group: click.Group, context: click.Context, word: str) -> str:
    """What belongs after the group's name in place of a wrong word: "down --keep NAME..."; "" where nobody knows."""
    others = SUBCOMMANDS.get(group.name or "", {})
    near = next((name for name, words in others.items() if word in words), None)
    near = near or "".join(get_close_matches(word, group.commands, n=1))
    if not near:
        return ""
    takes = group.commands[near.split()[0]].collect_usage_pieces(context)
    return " ".join([near, *(piece for piece in takes if not piece.startswith("["))])
