"""A machine that answers what a test says: a real sshd whose every command runs a script, for the real Ansible.

    with ScriptedHost(folder) as host:
        host.answer("setup", {"ansible_facts": {...}})
        host.answer("command .*apt-mark", {"rc": 0, "stdout": ""})

The first pattern that is found in "MODULE ARGUMENTS" decides; a module without an answer says {"changed": false}. What
is no module (`echo ~`) runs as on any machine. Everything it was sent is in `received()`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from sshserver import Sshd

from gpuprep.remote import Target

FLOOD, DEEP, HANG, RAW = "__flood__", "__deep__", "__hang__", "__raw__"

# What sshd runs in place of each command. Standard library only, no site packages: it starts dozens of times.
SCRIPT = r"""
import base64, io, json, os, re, subprocess, sys, time, zipfile
folder = FOLDER
command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
with open(folder + "/commands", "a") as log:
    log.write(command + "\n")

def keep(data):
    with open(folder + "/received", "ab") as file:
        file.write(data + b"\n")

def say(answer):
    if "__raw__" in answer:
        text = answer["__raw__"]
    elif "__hang__" in answer:
        with open(folder + "/hanging", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(answer["__hang__"])
        text = "{}"
    elif "__flood__" in answer:
        text = '{"changed": false, "stdout": "'
        piece = "x" * (1 << 20)
        sys.stdout.write(text)
        for _ in range(answer["__flood__"]):
            sys.stdout.write(piece)
        text = '"}'
    elif "__deep__" in answer:
        text = '{"changed": true, "x": ' + "[" * answer["__deep__"] + "]" * answer["__deep__"] + "}"
    else:
        text = json.dumps(answer)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    sys.exit(answer.get("__rc__", 0))

def first(text):
    for pattern, answer in json.load(open(folder + "/answers")):
        if re.search(pattern, text, re.DOTALL):
            return answer
    return None

if "echo FOUND" in command:
    print("FOUND\n/usr/bin/python3\nENDFOUND")
    sys.exit(0)
if "sftp" in command or "scp" in command:
    sys.exit(1)  # no file transfer but through dd
if re.search(r"\bdd of=", command):
    keep(sys.stdin.buffer.read())
    sys.exit(0)
if re.search(r"python[0-9.]*['\" ]*&& sleep 0", command):
    program = sys.stdin.buffer.read()
    found = re.search(rb"ansible[./]modules[./](\w+)", program)
    if found:
        keep(program)
        answer = first(found[1].decode() + " " + program[:200000].decode(errors="replace"))
        say({"changed": False} if answer is None else answer)
    sys.exit(subprocess.run([sys.executable, "-I", "-"], input=program).returncode)
answer = first("raw " + command)
if answer is not None:
    keep(sys.stdin.buffer.read())
    say(answer)
os.execvp("/bin/sh", ["sh", "-c", command])
"""


class ScriptedHost:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._answers: list[tuple[str, dict[str, Any]]] = []
        home = folder / "client"
        (home / ".ssh").mkdir(parents=True)
        self._script = script = folder / "script.py"
        script.write_text(SCRIPT.replace("FOLDER", repr(str(folder)), 1))
        (folder / "answers").write_text("[]")
        self._sshd = Sshd(folder, home, f"ForceCommand {sys.executable} -I -S {script}")
        self._sshd.trust()

    def __enter__(self) -> ScriptedHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sshd.stop()
        for process in psutil.process_iter(["cmdline"]):  # what hangs has outlived its connection
            if str(self._script) in (process.info["cmdline"] or []):
                process.kill()

    @property
    def target(self) -> Target:
        return self._sshd.target(known_hosts=str(self._sshd.known_hosts))

    def answer(self, pattern: str, answer: dict[str, Any]) -> None:
        self._answers.append((pattern, answer))
        (self.folder / "answers").write_text(json.dumps(self._answers))

    def commands(self) -> list[str]:
        path = self.folder / "commands"
        return path.read_text().splitlines() if path.exists() else []

    def received(self) -> bytes:
        path = self.folder / "received"
        return path.read_bytes() if path.exists() else b""
