"""Reads a grub.cfg as GRUB does: which menu does it make, and which variables does it set?

The settings in /etc/default/grub say what somebody wished; grub.cfg with its environment block says what boots.
Stdlib only and without gpuprep's other modules, Python 3.9 or newer: the collection's modules have it by a link.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

MOST_TEXT = 1 << 20  # bytes of one file; real ones have 5 to 40 KiB
MOST_TOKENS = 200_000  # of all files together
MOST_STEPS = 20_000  # commands that are run: a real menu has some hundreds
MOST_ENTRIES = 500
MOST_DEPTH = 24  # of blocks in each other
MOST_SOURCES = 8  # files that read each other
MOST_VALUE = 64 * 1024  # letters of one variable: a line that doubles itself grows without an end
ENVIRONMENT = "# GRUB Environment Block"

# Words of a command are lists of parts: (text, it names a variable, it stands in quotes).
Word = List[Tuple[str, bool, bool]]
Value = Optional[str]  # None: nobody can know it here


class NotUnderstood(Exception):
    """The settings say something that this reader cannot follow; the message says what."""


@dataclass
class Entry:
    """An entry of the menu; `children` are those of a submenu."""

    title: str
    id: str = ""
    children: Optional[List[Entry]] = None
    linux: str = ""  # the kernel's path as the boot loader writes it; "" if the entry starts none
    initrds: Tuple[str, ...] = ()
    options: str = ""
    sure: bool = True  # False: whether it is in the menu depends on what only GRUB knows
    file: str = ""  # of a BLS entry


@dataclass
class Command:
    words: List[Word]
    body: Optional[List[Any]] = None  # of a menuentry, submenu or function


@dataclass
class If:
    branches: List[Tuple[List[Any], List[Any]]]
    otherwise: List[Any]


@dataclass
class Loop:
    variable: str  # of a `for`
    body: List[Any]


def environment(text: str) -> Dict[str, str]:
    """The variables of an environment block; {} for a file that GRUB would refuse."""
    if not text.startswith(ENVIRONMENT):
        return {}
    found = {}
    for line in text.replace("\\\n", "").split("\n"):
        name, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w{0,60}", name):
            found[name] = re.sub(r"\\(.)", r"\1", value)
    return found


# ---------------------------------------------------------------- words and blocks

_NAME = re.compile(r"\$(?:\{(\w+|\?)\}|(\w+|\?))")
_PLAIN = re.compile(r"[^\s;\"'\\$#{}]+")


def tokens(text: str) -> List[Any]:
    """Words, and "\\n" between commands."""
    found: List[Any] = []
    word: Optional[Word] = None
    at, end = 0, len(text)
    while at < end:
        sign = text[at]
        if sign == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
            continue
        if sign in " \t\r" or sign in "\n;" or (sign == "#" and word is None):
            if word is not None:
                found.append(word)
                word = None
            if sign == "#":
                line = text.find("\n", at)
                at = line if line >= 0 else end
                continue
            if sign in "\n;":
                found.append("\n")
            at += 1
        elif sign == "'":
            close = text.find("'", at + 1)
            if close < 0:
                raise NotUnderstood("a quote is not closed")
            word = [*(word or []), (text[at + 1 : close], False, True)]
            at = close + 1
        elif sign == '"':
            part, at = _quoted(text, at + 1)
            word = [*(word or []), *part]
        elif sign == "$" and (name := _NAME.match(text, at)):
            word = [*(word or []), (name[1] or name[2], True, False)]
            at = name.end()
        elif sign == "\\":
            word = [*(word or []), (text[at + 1 : at + 2], False, True)]
            at += 2
        else:
            plain = _PLAIN.match(text, at)
            part_text = plain[0] if plain else sign
            word = word or []
            word.append((part_text, False, False))
            at += len(part_text)
        if len(found) > MOST_TOKENS or (word is not None and len(word) > 2000):
            raise NotUnderstood(f"it has more than {MOST_TOKENS} words, or a word of too many parts")
    return [*found, word] if word is not None else found


def _quoted(text: str, at: int) -> Tuple[Word, int]:
    """The parts up to the closing quote, and the place behind it."""
    parts: Word = [("", False, True)]
    plain: List[str] = []
    while at < len(text):
        sign = text[at]
        if sign == '"':
            return [*parts, ("".join(plain), False, True)], at + 1
        if sign == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$"):
            plain.append(text[at + 1])
            at += 2
        elif sign == "$" and (name := _NAME.match(text, at)):
            parts += [("".join(plain), False, True), (name[1] or name[2], True, True)]
            plain = []
            at = name.end()
        else:
            plain.append(sign)
            at += 1
    raise NotUnderstood("a quote is not closed")


def _bare(token: Any) -> str:
    """A word without quotes and variables, such as `if`; "" for any other."""
    simple = isinstance(token, list) and all(not variable and not quoted for _, variable, quoted in token)
    return "".join(part for part, _, _ in token) if simple else ""


class _Parser:
    def __init__(self, found: List[Any]) -> None:
        self.tokens, self.at = found, 0

    def block(self, ends: Sequence[str], depth: int = 0) -> Tuple[List[Any], str]:
        """The commands up to one of the words `ends`, and that word; at the end of the file ""."""
        if depth > MOST_DEPTH:
            raise NotUnderstood(f"blocks are nested deeper than {MOST_DEPTH}")
        commands: List[Any] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == "\n":
                self.at += 1
                continue
            bare = _bare(token)
            if bare in ends:
                self.at += 1
                return commands, bare
            if bare == "if":
                commands.append(self._if(depth))
            elif bare in ("for", "while", "until"):
                commands.append(self._loop(depth))
            else:
                commands.append(self._command(depth))
        if ends:
            raise NotUnderstood(f"{' or '.join(ends)} is missing at its end")
        return commands, ""

    def _if(self, depth: int) -> If:
        branches = []
        word = "if"
        while word in ("if", "elif"):
            if word == "if":
                self.at += 1
            condition, _ = self.block(("then",), depth + 1)
            body, word = self.block(("elif", "else", "fi"), depth + 1)
            branches.append((condition, body))
            if len(branches) > 200:
                raise NotUnderstood("an `if` has more than 200 branches")
        otherwise = self.block(("fi",), depth + 1)[0] if word == "else" else []
        return If(branches, otherwise)

    def _loop(self, depth: int) -> Loop:
        is_for = _bare(self.tokens[self.at]) == "for"
        self.at += 1
        variable = _bare(self.tokens[self.at]) if is_for and self.at < len(self.tokens) else ""
        self.block(("do",), depth + 1)
        return Loop(variable, self.block(("done",), depth + 1)[0])

    def _command(self, depth: int) -> Command:
        words: List[Word] = []
        while self.at < len(self.tokens) and self.tokens[self.at] != "\n":
            token = self.tokens[self.at]
            self.at += 1
            if _bare(token) == "{" and words:
                return Command(words, self.block(("}",), depth + 1)[0])
            words.append(token)
        return Command(words)


# ---------------------------------------------------------------- running it


@dataclass
class Menu:
    entries: List[Entry] = field(default_factory=list)
    variables: Dict[str, Value] = field(default_factory=dict)
    wants_bls: bool = False
    bls_at: int = 0  # how many entries stand before those of BLS


class Reader:
    """`read(path)` ─► a file's text, None if there is none; paths are those of the running system."""

    def __init__(self, read: Callable[[str], Optional[str]], folder: str, platform: str) -> None:
        self._read = read
        self._folder = folder
        self._steps = self._words = self._entries = 0
        self._functions: Dict[str, List[Any]] = {}
        self.menu = Menu(variables={"prefix": folder, "config_directory": folder, "grub_platform": platform})

    def run(self, path: str) -> Menu:
        text = self._read(path)
        if text is None:
            raise NotUnderstood(f"{path} is not there")
        self._run(self._parsed(text), self.menu.variables, self.menu.entries, True, 0)
        return self.menu

    def _parsed(self, text: str) -> List[Any]:
        found = tokens(text)
        self._words += len(found)
        if self._words > MOST_TOKENS:
            raise NotUnderstood(f"it has more than {MOST_TOKENS} words")
        return _Parser(found).block(())[0]

    def _run(
        self, commands: List[Any], env: Dict[str, Value], entries: List[Entry], sure: bool, depth: int
    ) -> Optional[bool]:
        """Runs the commands; True or False as the last of them ends, None if nobody can know."""
        if depth > 2 * MOST_DEPTH:
            raise NotUnderstood("functions or files call each other without an end")
        status: Optional[bool] = True
        for command in commands:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise NotUnderstood(f"it runs more than {MOST_STEPS} commands")
            if isinstance(command, Command):
                status = self._command(command, env, entries, sure, depth)
            elif isinstance(command, If):
                self._if(command, env, entries, sure, depth)
                status = None
            else:
                self._maybe([command.body], env, entries, depth, variable=command.variable)
                status = None
        return status

    def _if(self, command: If, env: Dict[str, Value], entries: List[Entry], sure: bool, depth: int) -> None:
        possible: List[List[Any]] = []
        for condition, body in command.branches:
            holds = self._run(condition, env, entries, sure, depth + 1)
            if holds is False:
                continue
            possible.append(body)
            if holds is True:
                break
        else:
            possible.append(command.otherwise)
        if len(possible) == 1:
            self._run(possible[0], env, entries, sure, depth + 1)
        else:
            self._maybe(possible, env, entries, depth, certain=True)

    def _maybe(
        self,
        bodies: List[List[Any]],
        env: Dict[str, Value],
        entries: List[Entry],
        depth: int,
        *,
        certain: bool = False,
        variable: str = "",
    ) -> None:
        """Runs what may run: what the variables are afterwards is known only where all agree. `certain`: one of the
        bodies runs; `variable`: of a loop, which has any value.
        """
        results = [] if certain else [dict(env)]
        for body in bodies:
            mine = {**env, variable: None} if variable else dict(env)
            self._run(body, mine, entries, False, depth + 1)
            results.append(mine)
        for name in {name for result in results for name in result}:
            values = {result.get(name, "") for result in results}
            env[name] = values.pop() if len(values) == 1 else None

    def _expand(self, words: Sequence[Word], env: Dict[str, Value]) -> List[Value]:
        """The words with their variables; an unquoted variable that is empty is no word."""
        found: List[Value] = []
        for word in words:
            text: Value = ""
            quoted = False
            for part, variable, in_quotes in word:
                quoted = quoted or in_quotes or not variable
                value = self._variable(part, env) if variable else part
                text = None if text is None or value is None else text + value
                if text is not None and len(text) > MOST_VALUE:
                    raise NotUnderstood("a variable grows without an end")
            if text != "" or quoted:
                found.append(text)
        return found

    def _variable(self, name: str, env: Dict[str, Value]) -> Value:
        if name in env:
            return env[name]
        if name.startswith("feature_"):
            return "y"
        return None if name in ("?", "root", "cmdpath", "grub_cpu", "shim_lock", "lockdown") else ""

    def _command(
        self, command: Command, env: Dict[str, Value], entries: List[Entry], sure: bool, depth: int
    ) -> Optional[bool]:
        words = self._expand(command.words, env)
        name = words[0] if words else ""
        if name is None:
            return None
        if command.body is not None:
            if name == "function" and len(words) > 1 and words[1]:
                self._functions[words[1]] = command.body
            elif name in ("menuentry", "submenu"):
                entries.append(self._entry(name == "submenu", words[1:], command.body, env, sure, depth))
            return True
        if name in self._functions:
            return self._run(self._functions[name], env, entries, sure, depth + 1)
        if name in ("[", "test"):
            return self._test([word for word in words[1:] if word != "]" or name == "test"])
        if name in ("true", "false"):
            return name == "true"
        assignment = words[1] if name == "set" and len(words) > 1 else name if len(words) == 1 else None
        if name == "set" and assignment is None and len(words) > 1:
            # A value that nobody knows; the name stands in the first part of the word.
            variable = "".join(part for part, is_variable, _ in command.words[1] if not is_variable).partition("=")[0]
            env[variable] = None
            return True
        if assignment and re.match(r"[A-Za-z_]\w*=", assignment):
            variable, _, value = assignment.partition("=")
            env[variable] = value
            return True
        return self._builtin(name, words[1:], env, entries, sure, depth)

    def _builtin(
        self, name: str, words: List[Value], env: Dict[str, Value], entries: List[Entry], sure: bool, depth: int
    ) -> Optional[bool]:
        if name == "unset":
            for word in words:
                env[word or ""] = ""
        elif name == "load_env":
            self._load(words, env)
        elif name in ("source", ".", "configfile"):
            self._source(name, words, env, entries, sure, depth)
        elif name == "eval":
            if None in words:
                raise NotUnderstood("grub.cfg runs commands that only GRUB knows (eval)")
            text = self._parsed(" ".join(word or "" for word in words))
            return self._run(text, env, entries, sure, depth + 1)
        elif name in ("blscfg", "bls_import", "uki"):
            if not sure or words or name == "uki":
                raise NotUnderstood(f"grub.cfg runs {name} under a condition or with options")
            self.menu.wants_bls, self.menu.bls_at = True, len(entries)
        elif name in ("legacy_configfile", "syslinux_configfile", "extract_entries_source", "normal"):
            raise NotUnderstood(f"grub.cfg hands over to another configuration ({name})")
        else:
            return None
        return True

    def _load(self, words: List[Value], env: Dict[str, Value]) -> None:
        path: Value = f"{self._folder}/grubenv"
        only = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word in ("-f", "--file") and rest:
                path = rest.pop(0)
            elif word and word.startswith("--file="):
                path = word.partition("=")[2]
            elif word and not word.startswith("-"):
                only.append(word)
        place = self._place(path)
        if place is None:
            raise NotUnderstood("grub.cfg loads variables from a file on another disk")
        found = environment(self._read(place) or "")
        env.update({name: value for name, value in found.items() if not only or name in only})

    def _source(
        self, name: str, words: List[Value], env: Dict[str, Value], entries: List[Entry], sure: bool, depth: int
    ) -> None:
        place = self._place(words[0] if words else None)
        if place is None:
            raise NotUnderstood(
                f"grub.cfg reads a file on another disk ({name} {(words or [''])[0] or 'of a variable'})"
            )
        text = self._read(place)
        if text is None:
            return
        self._sources = getattr(self, "_sources", 0) + 1
        if self._sources > MOST_SOURCES:
            raise NotUnderstood(f"files read each other more than {MOST_SOURCES} times")
        if name == "configfile":
            if not sure:
                raise NotUnderstood("grub.cfg hands over to another file under a condition")
            entries.clear()
        self._run(self._parsed(text), env, entries, sure, depth + 1)

    def _place(self, path: Value) -> Optional[str]:
        """The file's path on the running system, None if it is not in GRUB's own folder."""
        if not path or ".." in path.split("/") or not path.startswith(self._folder + "/"):
            return None
        return path

    def _test(self, words: List[Value]) -> Optional[bool]:
        """`[ ... ]`: -a binds closer than -o, both without brackets, as in all that grub-mkconfig writes."""
        alternatives: List[List[List[Value]]] = [[[]]]
        for word in words:
            if word == "-o":
                alternatives.append([[]])
            elif word == "-a":
                alternatives[-1].append([])
            else:
                alternatives[-1][-1].append(word)
        return _any([_all([self._single(one) for one in parts]) for parts in alternatives])

    def _single(self, words: List[Value]) -> Optional[bool]:
        if words[:1] == ["!"]:
            inner = self._single(words[1:])
            return None if inner is None else not inner
        if len(words) == 1:
            return None if words[0] is None else words[0] != ""
        if len(words) == 2:
            return self._unary(words[0], words[1])
        if len(words) != 3 or words[0] is None or words[2] is None:
            return False if not words else None
        left, sign, right = words[0], words[1], words[2]
        if sign in ("=", "=="):
            return left == right
        if sign == "!=":
            return left != right
        if re.fullmatch(r"\d{1,9}", left) and re.fullmatch(r"\d{1,9}", right):
            difference = int(left) - int(right)
            return {
                "-eq": difference == 0, "-ne": difference != 0, "-lt": difference < 0, "-le": difference <= 0,
                "-gt": difference > 0, "-ge": difference >= 0,
            }.get(sign or "")  # fmt: skip
        return None

    def _unary(self, sign: Value, value: Value) -> Optional[bool]:
        if sign == "-n":
            return None if value is None else value != ""
        if sign == "-z":
            return None if value is None else value == ""
        place = self._place(value)
        if sign not in ("-e", "-f", "-s") or place is None:
            return None
        text = self._read(place)
        return bool(text) if sign == "-s" else text is not None

    # ------------------------------------------------ entries

    def _entry(
        self, is_submenu: bool, words: List[Value], body: List[Any], env: Dict[str, Value], sure: bool, depth: int
    ) -> Entry:
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise NotUnderstood(f"the menu has more than {MOST_ENTRIES} entries")
        title, own_id = "", ""
        rest = list(words)
        named = False
        while rest:
            word = rest.pop(0)
            if word in ("--class", "--users", "--hotkey", "--id", "--source"):
                value = rest.pop(0) if rest else ""
                own_id = (value or "") if word == "--id" else own_id
            elif word is not None and word.startswith("--id="):
                own_id = word[5:]
            elif word is not None and word.startswith("--"):
                continue
            elif not named:
                title, named = word or "", True
        entry = Entry(title, own_id or title, sure=sure)
        mine = {"root": "root", **env}  # "($root)/boot/..." is the disk that the entry has searched for
        if is_submenu:
            entry.children = []
            self._run(body, mine, entry.children, True, depth + 1)
        else:
            self._boots(body, mine, entry, depth)
        return entry

    def _boots(self, body: List[Any], env: Dict[str, Value], entry: Entry, depth: int) -> None:
        """What the entry would start: the commands linux and initrd in the branches that can run."""
        if depth > 2 * MOST_DEPTH:
            raise NotUnderstood("functions call each other without an end")
        for command in body:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise NotUnderstood(f"it runs more than {MOST_STEPS} commands")
            if isinstance(command, If):
                for condition, inner in command.branches:
                    holds = self._run(condition, env, [], True, depth + 1)
                    if holds is not False:
                        self._boots(inner, env, entry, depth + 1)
                    if holds is True:
                        break
                else:
                    self._boots(command.otherwise, env, entry, depth + 1)
            elif isinstance(command, Command) and command.body is None:
                words = self._expand(command.words, env)
                name = (words[0] if words else "") or ""
                if name in ("linux", "linux16", "linuxefi") and len(words) > 1:
                    if words[1] is None:
                        raise NotUnderstood(
                            f"the kernel of the entry {entry.title!r:.80} depends on what only GRUB knows"
                        )
                    entry.linux = words[1]
                    entry.options = " ".join(word for word in words[2:] if word)
                elif name in ("initrd", "initrd16", "initrdefi"):
                    entry.initrds = tuple(word for word in words[1:] if word)
                elif name in ("set", "unset", "load_env") or re.match(r"[A-Za-z_]\w*=", name):
                    self._command(command, env, [], True, depth + 1)


def _all(results: Sequence[Optional[bool]]) -> Optional[bool]:
    return False if False in results else None if None in results else True


def _any(results: Sequence[Optional[bool]]) -> Optional[bool]:
    return True if True in results else None if None in results else False


# ---------------------------------------------------------------- the default


def chosen(entries: Sequence[Entry], default: str) -> Entry:
    """The entry that `default` names, as GRUB finds it: a number, a title or an id, those of submenus after `>`.

    What names no entry starts the first one.
    """
    level, rest = list(entries), default
    for _ in range(MOST_DEPTH):
        if not level:
            raise NotUnderstood("the menu, or a submenu that it starts, is empty")
        name, rest = _component(rest)
        name = name.strip()
        at = int(name) if re.fullmatch(r"\d{1,4}", name) else _named(level, name)
        at = 0 if at is None or at >= len(level) else at
        entry = level[at]
        if not all(one.sure for one in level[: at + 1]):
            raise NotUnderstood(
                f"whether {entry.title!r:.80} is entry {at} of the menu depends on what only GRUB knows"
            )
        if entry.children is None:
            return entry
        level = entry.children
    raise NotUnderstood("submenus are nested without an end")


def _component(path: str) -> Tuple[str, str]:
    """The part before a single `>`, and the rest; `>>` is a `>` of a title."""
    match = re.match(r"((?:[^>]|>>)*)(?:>(.*))?\Z", path, re.DOTALL)
    return (match[1].replace(">>", ">"), match[2] or "") if match else (path, "")


def _named(entries: Sequence[Entry], name: str) -> Optional[int]:
    return next((at for at, entry in enumerate(entries) if name and name in (entry.id, entry.title)), None)


def flattened(entries: Sequence[Entry], depth: int = 0) -> List[Entry]:
    found: List[Entry] = []
    for entry in entries if depth <= MOST_DEPTH else ():
        found += flattened(entry.children, depth + 1) if entry.children is not None else [entry]
    return found
