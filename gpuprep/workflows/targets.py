"""HOST arguments ─► Targets: names, aliases, addresses, local, sim:NAME, or patterns of an inventory."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gpuprep.agent.host_paths import SIMULATION_MARK
from gpuprep.errors import SimError, UsageError
from gpuprep.provisioning.ansible_environment import ansible_program
from gpuprep.records.recorded_options import STEPS
from gpuprep.remote.types import Target
from gpuprep.untrusted.limits import open_regular
from gpuprep.untrusted.owners import of_others
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- which names are allowed


MOST_LETTERS = 255  # of a name
MOST_TEXT = 4096  # of a path or a pattern
TEMPLATE_MARKS = ("{{", "{%", "{#")
# What OpenSSH lets into no host name and no user name.
SHELL_LETTERS = frozenset("'`\"$\\;&<>|(){}")
MOST_DEPTH = 50


def check_word(what: str, text: str, hint: str) -> None:
    """Check a host name or an address, with or without user@. Raises UsageError with one line."""
    user, at, _ = text.rpartition("@")
    _refuse(what, text, (at and _user_problem(user)) or _word_problem(text[len(user) :]), hint)


def check_user(what: str, text: str, hint: str) -> None:
    _refuse(what, text, _user_problem(text), hint)


def check_text(what: str, text: str, hint: str) -> None:
    """Check a path or an Ansible pattern, which may have blanks and brackets. Raises UsageError, as for a template."""
    _refuse(what, text, _text_problem(text, MOST_TEXT), hint)


def _refuse(what: str, text: str, problem: str, hint: str) -> None:
    if problem:
        raise UsageError(f"{what} {_shown(text)} {problem}", hint)


def _user_problem(text: str) -> str:
    """What is wrong with a user name, or "". DOMAIN\\user is valid; OpenSSH refuses only a backslash at the end."""
    return "ends in a backslash" if text.endswith("\\") else _word_problem(text.replace("\\", ""))


def _word_problem(text: str) -> str:
    if not text:
        return "is empty"
    if bad_letter := next((letter for letter in text if letter in SHELL_LETTERS or letter.isspace()), None):
        return _template_problem(text) or _text_problem(text, MOST_LETTERS) or f"has {_named(bad_letter)} in it"
    return _text_problem(text, MOST_LETTERS)


def _text_problem(text: str, most: int) -> str:
    if len(text) > most:
        return f"has {len(text)} letters, at most {most} are allowed"
    if text.startswith("-"):
        return "begins with a dash, as an option does"
    if text.startswith("@-"):
        return "has a dash after the @, where an option would begin"
    if not text.isprintable():
        return "has invisible or control characters in it"
    return _template_problem(text)


def _template_problem(text: str) -> str:
    return "is a template, which gpuprep does not evaluate" if any(mark in text for mark in TEMPLATE_MARKS) else ""


def _named(letter: str) -> str:
    return "a blank" if letter == " " else repr(letter)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


# ---------------------------------------------------------------- HOST arguments and inventories


# Brackets hold an IPv6 address; a bare IPv6 address has more than one colon and no port.
ADDRESS = re.compile(
    r"^(?:(?P<user>[^@\s]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\s\[\]@/\\]+))(?::(?P<port>[0-9]+))?$"
)
PORT = re.compile("[0-9]{1,5}")
SIMULATED = "sim:"
BARE_V6 = re.compile(r"^(?:(?P<user>[^@\s]+)@)?(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$")
FORMS = "a host name, an SSH alias, user@host:port, [v6-address]:port, local or sim:NAME"

KEY = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----")
PLUGIN = re.compile(
    rb"^[\s{]*[\"']?plugin[\"']?\s*:", re.MULTILINE
)  # settings of a plugin of inventories, in YAML or JSON
MOST_FILES = 10_000  # in a folder of inventories
NOT_PARSED = "No inventory was parsed"
NO_PLUGIN = "no root 'plugin' key found"  # each YAML inventory is tried as the settings of a plugin, too
ORIGIN = re.compile(r"Origin: .*?:([0-9]+)(?::[0-9]+)?$")
MOST_BYTES = 64 << 20  # of what Ansible says of an inventory
LOOKED_AT = 64 << 10  # at the end of its errors
MOST_SHOWN = 80  # letters of a name that is refused

# Connection variables that Ansible knows under several names, the one that wins first.
ADDRESS_KEYS = ("ansible_host", "ansible_ssh_host")
PORT_KEYS = ("ansible_port", "ansible_ssh_port")
USER_KEYS = ("ansible_user", "ansible_ssh_user")
PROFILE_KEY = "gpu_profile"  # of a host or a group; --profile counts more
ROLES = tuple(f"gpu_{step}_" for step in ("preflight", *STEPS))  # how variables of the roles begin
KEY_FILE_KEYS = ("ansible_ssh_private_key_file", "ansible_private_key_file")
# Variables that are not used, and what does the same for gpuprep.
NOT_CARRIED = {
    **dict.fromkeys(("ansible_ssh_common_args", "ansible_ssh_extra_args"), "~/.ssh/config does the same for gpuprep"),
    **dict.fromkeys(("ansible_become_password", "ansible_become_pass"), "--ask-become-pass does the same for gpuprep"),
    **dict.fromkeys(
        ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass"),
        "gpuprep logs in with keys alone: `ssh-copy-id` lets yours in with that password",
    ),
}


def parse(
    hosts: Sequence[str],
    inventory: str | None = None,
    limit: str | None = None,
    *,
    ssh_key: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Target]:
    """The machines that `hosts` name, each once, in this order. `note` is called for unused inventory variables.

    Raises UsageError for an invalid HOST, for a pattern that matches no host and for an inventory that cannot be
    read; SimError for a simulated machine that does not exist.
    """
    said: set[str] = set()

    def once(text: str) -> None:
        if text not in said:
            said.add(text)
            note(text)

    if inventory is not None:
        targets = _from_inventory(hosts, inventory, limit, once)
    elif limit is not None:
        raise UsageError("--limit needs an inventory", "give one with -i")
    else:
        targets = [_parse_one(text) for text in hosts]
    if ssh_key is not None:
        if not Path(ssh_key).expanduser().exists():
            raise UsageError(f"--ssh-key {ssh_key}: there is no such file", "give the path of a private key")
        targets = [t if t.local else dataclasses.replace(t, identity_file=ssh_key) for t in targets]
    return list({target.name: target for target in targets}.values())


def _parse_one(text: str) -> Target:
    help_line = f"HOST is {FORMS}; with -i a pattern of the inventory"
    check_word("HOST", text, help_line)
    if text == "local":
        return Target(name="local", local=True, simulated=Path(SIMULATION_MARK).exists())
    if text.startswith(SIMULATED):
        return _simulated(text)
    parts = _parts(text)
    if not parts:
        raise UsageError(f"{text!r} is not a valid HOST", help_line)
    port = _port(text, parts.get("port") or "22")
    return Target(name=text, address=parts.get("host") or parts["v6"], port=port, user=parts.get("user"))


def _simulated(name: str) -> Target:
    from gpuprep import sim

    return sim.target(name.removeprefix(SIMULATED))


def _parts(address: str) -> dict[str, Any]:
    """user, v6 or host, and port of an address; {} if it is not a valid address."""
    match = BARE_V6.fullmatch(address) or ADDRESS.fullmatch(address)
    return match.groupdict() if match else {}


def _port(where: str, text: str) -> int:
    if not PORT.fullmatch(text) or not 0 < int(text) < 65536:
        raise UsageError(f"{where}: {text[:20]!r} is not a port", "ports go from 1 to 65535")
    return int(text)


def _from_inventory(
    patterns: Sequence[str], inventory: str, limit: str | None, note: Callable[[str], None]
) -> list[Target]:
    check_text("inventory", inventory, "-i takes a file, a folder or a host list with a comma")
    if not inventory.strip():  # an unset variable of a shell; as a path it is the present folder
        raise UsageError("-i is empty", "-i takes a file, a folder or a host list with a comma")
    for pattern in (*patterns, *([] if limit is None else [limit])):
        check_text("pattern", pattern, "patterns are Ansible's: names, groups, and : ! & * between and in them")
    if not inventory.endswith(",") and "," not in inventory and not Path(inventory).exists():
        raise UsageError(f"there is no inventory {inventory}", "-i takes a file, a folder or a host list with a comma")
    if Path(inventory).is_fifo() or Path(inventory).is_socket():
        what = f"inventory {inventory}: is no regular file"
        raise UsageError(what, "-i takes a file, a folder or a host list with a comma")
    _refuse_key(inventory)
    if "," not in inventory:
        _refuse_weak(Path(inventory))
    ansible_program("ansible")  # the first look-up fills tables of sysconfig, which two threads must not do at once
    with ThreadPoolExecutor(1) as other:  # each of Ansible's programs takes half a second to start
        read = other.submit(_host_variables, inventory)
        names = _matching(patterns or ["all"], inventory, limit)
        variables = read.result()
    make = _inventory_target if len(names) == 1 else _inventory_host
    return [make(name, variables.get(name, {}), note) for name in names]


def _refuse_key(inventory: str) -> None:
    """Raises UsageError if the inventory is a private key: `-i` is ssh's option for a key, gpuprep's is --ssh-key."""
    path = Path(inventory).expanduser()
    try:
        with path.open("rb") as file:
            is_key = KEY.match(file.read(LOOKED_AT)) is not None
    except (OSError, ValueError):
        return  # a folder, a list of hosts, or what Ansible cannot read either
    if is_key:
        raise UsageError(f"-i {inventory} is a private SSH key, and -i takes an inventory", f"--ssh-key {inventory}")


def _refuse_weak(inventory: Path) -> None:
    """Raises UsageError if another user can change what Ansible runs of the inventory: programs, plugins' settings.

    A folder is one to which anybody who may write can add a program.
    """
    for path in _inside(inventory):
        if (path.is_dir() or _runs(path)) and (weak := of_others(path)):
            what = "Ansible runs the programs in it" if path.is_dir() else "Ansible runs what it says"
            whole = f"inventory {one_line(str(path), 200)}: {what}, and {one_line(weak.why, 300)}"
            raise UsageError(whole, f"read it first, then: {one_line(weak.mend, 500)}")


def _inside(inventory: Path) -> Iterator[Path]:
    """The inventory itself, and of a folder what Ansible looks at in it."""
    yield inventory
    looked = 0
    for place, folders, files in os.walk(inventory, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("group_vars", "host_vars")]
        for name in (*folders, *files):
            looked += 1
            if looked > MOST_FILES:
                raise UsageError(f"inventory {inventory}: it has more than {MOST_FILES} files", "name one of them")
            yield Path(place, name)


def _runs(path: Path) -> bool:
    """Whether Ansible runs this file, or the plugin that it names: that one takes templates, and these run programs."""
    if os.access(path, os.X_OK):
        return True
    try:
        with open_regular(path) as file:
            return PLUGIN.search(file.read(LOOKED_AT)) is not None
    except OSError:  # Ansible says why
        return False


def _inventory_host(name: str, variables: dict[str, Any], note: Callable[[str], None]) -> Target:
    """The Target of one inventory host. A bad name is an error of this host only: a cloud may have any names."""
    try:
        return _inventory_target(name, variables, note)
    except (UsageError, SimError) as error:
        # In quotes, which no name may have: it must not pass for the name of another host.
        return Target(name=one_line(ascii(name), MOST_SHOWN), refused=f"{error.what}; {error.hint}")


def _matching(patterns: Sequence[str], inventory: str, limit: str | None) -> list[str]:
    """Names of the hosts that match the patterns and `--limit`, by Ansible itself. Raises UsageError for no host."""
    limits = ["--limit", limit] if limit is not None else []
    text = _ansible("ansible", [":".join(patterns), "-i", inventory, "--list-hosts", *limits], inventory)
    names = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    if not names:
        shown = ":".join(patterns) + (f" limited to {limit}" if limit is not None else "")
        raise UsageError(
            f"no host of {inventory} matches {shown}", f"`ansible-inventory -i {inventory} --graph` shows what it has"
        )
    return names


def _host_variables(inventory: str) -> dict[str, dict[str, Any]]:
    output = _ansible("ansible-inventory", ["-i", inventory, "--list"], inventory)
    try:
        variables = json.loads(output)["_meta"]["hostvars"]
        return {str(name): {str(key): _plain(value) for key, value in of.items()} for name, of in variables.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"inventory {inventory}: the output of ansible-inventory cannot be read ({type(error).__name__})",
            f"try `ansible-inventory -i {inventory} --list`",
        ) from None


def _plain(value: Any) -> Any:
    """The plain value: Ansible wraps a text that the inventory marks !unsafe."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and set(value) == {"__ansible_unsafe"} else value


def _ansible(program: str, arguments: list[str], inventory: str) -> str:
    # The user's own ansible.cfg stays in force here: it says which inventory plugins are on and where vault
    # passwords are.
    advice = f"try `ansible-inventory -i {inventory} --list`"
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
    }
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            [str(ansible_program(program)), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read(MOST_BYTES + 1)
            if len(output) > MOST_BYTES:
                process.kill()
                raise UsageError(f"inventory {inventory}: it is larger than {MOST_BYTES >> 20} MiB", advice)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - LOOKED_AT))
        complaint = errors.read(LOOKED_AT).decode(errors="replace")
    if process.returncode != 0:
        raise UsageError(f"inventory {inventory}: {one_line(_reason(complaint))}", advice)
    return output.decode(errors="replace")


def _reason(complaint: str) -> str:
    """The line of Ansible's messages with the cause; if no plugin can read the inventory, the first plugin's error."""
    every = [line.strip() for line in complaint.splitlines() if line.strip()]
    errors = [line for line in every if line.startswith(("[ERROR]", "ERROR"))]
    last = (errors or every or ["no message"])[-1]
    if NOT_PARSED not in last:
        return last
    places = [place for place, line in enumerate(every) if "plugin: " in line and NO_PLUGIN not in line]
    if not places:
        return last
    where = next((origin for line in every[places[0] :] if (origin := ORIGIN.match(line))), None)
    why = re.sub(
        r"^(failed to parse inventory:? ?)+", "", every[places[0]].partition("plugin: ")[2], flags=re.IGNORECASE
    )
    return f"line {where[1]}: {why}" if where else why


def _inventory_target(name: str, variables: dict[str, Any], note: Callable[[str], None]) -> Target:
    advice = "give a plain value in the inventory"
    check_word("host", name, "give it another name in the inventory")

    def first(keys: tuple[str, ...], check: Callable[[str, str, str], None] = check_word) -> str | None:
        for key in keys:
            if variables.get(key) not in (None, ""):
                value = variables[key]
                if isinstance(value, bool) or not isinstance(value, (str, int)):
                    raise UsageError(f"host {name}: {key} is not a text", advice)
                check(f"host {name}: {key}", str(value), advice)
                return str(value)
        return None

    for key, instead in NOT_CARRIED.items():
        if key in variables:
            note(f"{name}: {key} of the inventory is not used; {instead}")
    _refuse_wishes(name, variables, note)
    profile = first((PROFILE_KEY,), check_text) or ""
    given = first(ADDRESS_KEYS)
    if name.startswith(SIMULATED) and given is None:
        return dataclasses.replace(_simulated(name), profile=profile)
    port = _port(f"host {name}: ansible_port", first(PORT_KEYS) or "22")
    local = first(("ansible_connection",)) == "local"
    address, user = given or name, first(USER_KEYS, check_user)
    if not local:
        _check_address(name, address, user)
    return Target(
        name=name,
        address="" if local else address,
        port=port,
        user=user,
        identity_file=first(KEY_FILE_KEYS, check_text),
        local=local,
        profile=profile,
    )


def _check_address(name: str, address: str, user: str | None) -> None:
    parts = _parts(address)
    if not parts or parts.get("port"):
        raise UsageError(f"host {name}: {address[:MOST_SHOWN]!r} is not an address", "give a port as ansible_port")
    if parts["user"] and user:
        raise UsageError(
            f"host {name}: {address[:MOST_SHOWN]!r} names a user, and so does ansible_user", "give only one of them"
        )


def _refuse_wishes(name: str, variables: dict[str, Any], note: Callable[[str], None]) -> None:
    """Raises UsageError for a variable of a role: one that does nothing must not pass for a wish.

    Inventories that others share have a gpu_count or a gpu_type: that those are not used is said once.
    """
    for key in variables:
        if not key.startswith("gpu_") or key == PROFILE_KEY:
            continue
        if key.startswith(ROLES) or get_close_matches(key, [PROFILE_KEY], cutoff=0.8):
            raise UsageError(
                f"host {name}: {one_line(key, MOST_SHOWN)} is no variable of gpuprep; allowed is {PROFILE_KEY}",
                f"write what the host is to have into a profile, and its path into {PROFILE_KEY} (docs/fleets.md)",
            )
        note(f"{one_line(key, MOST_SHOWN)} of the inventory is not used: gpuprep reads {PROFILE_KEY} alone")
