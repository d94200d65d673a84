"""What a host says on the live display: nothing but letters in its own row, whatever rich or a terminal could read."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hostilerecords import PAYLOADS
from parsedformats import drawn, listed, progress
from pseudoterminal import Screen, Terminal

from gpuprep.provisioning import ansible_events

SAID = {
    **PAYLOADS,
    "a style": "[red]PASS[/red]",
    "a link": "[link=https://evil.example]click[/link]",
    "a closing tag": "[/] [/red] [/]",
    "an action": "[@click=app.quit]x[/]",
    "an unclosed tag": "[bold",
    "an escaped tag": "\\[red]",
    "an emoji by name": ":pile_of_poo: :warning:",
    "a link of terminals": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "moves up": "\x1b[5A\x1b[2K",
    "asks the terminal": "\x1b[6n\x1b[c\x1bP$q\x1b\\",
    "hides the cursor": "\x1b[?25l\x1b[?1049h",
    "tabs": "\t\t\t\t\t\t\t\t\t\t\t\tx",
    "a very long line": "long " * 5_000,
    "a very long word": "x" * 20_000,
    "wide letters": "显卡" * 300,
    "wide forms": "ＰＡＳＳ" * 100,
    "marks upon marks": "a" + "\u0301" * 500,
    "joined pictures": "👩‍👩‍👧‍👦🏳️‍🌈" * 60,
    "no width and some": "\u1160\u115f\u3164" * 200,
    "right to left": "שלום" * 100,
}
# What the display itself writes: colours, begin of row, clear row, up.
OURS = re.compile(r"\x1b\[(?:0|1|3[0-7]|90|2K|\d*A)m?|\r")


def told(console: Any, said: str) -> None:
    console.progress("a", ansible_events.Progress("steps", "", "", "", 0.0, (("facts", 1.0), ("driver", 2.0))))
    for kind in ("stage", "note", "waiting", "diff"):
        console.progress("evil", ansible_events.Progress(kind, "gpu_driver", "Build", said, 0.0))
    console.progress("evil", ansible_events.Progress("task_end", said, said, "changed", 0.0))
    console.progress("evil", ansible_events.Progress("task_start", said, said, "", 0.0))
    console.progress("evil", ansible_events.Progress("waiting", said, said, said, 0.0))
    console.progress("evil", ansible_events.Progress("task_end", said, said, said, 0.0))
    console.progress("evil", ansible_events.Progress("task_start", "gpu_driver", said, "", 0.0))
    console.say(said)


@pytest.mark.parametrize("name", SAID)
def test_a_terminal_gets_letters_and_our_own_drawing(name: str, terminal: Terminal) -> None:
    with progress(terminal, "a", "evil", "b", no_color=False) as console:
        told(console, SAID[name])
        assert console._display is not None
        console._display.refresh()
        written = terminal.getvalue()
        screen = Screen()
        screen.feed(written.encode())
        # The display is whole: three rows, one a host, at the bottom.
        assert [row.split()[0] for row in screen.shown[-3:]] == ["a", "evil", "b"]
    written = terminal.getvalue()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", OURS.sub("", written))
    screen = Screen()
    screen.feed(written.encode())
    # It is taken away as a whole, and took away no line of another.
    assert "━" not in "".join(screen.everything)
    assert not screen.cursor_hidden


@pytest.mark.parametrize("name", [name for name in SAID if "[" in SAID[name] or ":" in SAID[name]])
def test_markup_is_shown_as_it_is(name: str, terminal: Terminal) -> None:
    plain = io.StringIO()
    for stream in (plain, terminal):
        with progress(stream, "a") as console:
            console.progress("a", ansible_events.Progress("stage", "", "", SAID[name], 0.0))
    written = re.sub(r"\r\x1b\[2K|\r|\x1b\[\d*A", "", terminal.getvalue())
    assert plain.getvalue() in written


@pytest.mark.parametrize("name", SAID)
def test_a_list_has_letters_alone(name: str) -> None:
    for columns, color in ((40, False), (80, False), (40, True), (80, True)):
        text = "\n".join(listed([("HOST", "RESULT"), (SAID[name], "PASS")], color=color, columns=columns))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text.replace("\x1b[32m", "").replace("\x1b[0m", ""))


@pytest.mark.parametrize("columns", [1, 10, 59, 60, 200])
@pytest.mark.parametrize("name", ["a very long word", "wide letters", "joined pictures"])
def test_it_is_never_higher_nor_wider_than_the_screen(name: str, columns: int) -> None:
    said = " ".join(SAID[name][:900].split())
    begins = ansible_events.Progress("task_start", said[:50], said, "", 0.0)
    waits = ansible_events.Progress("waiting", said, said, said, 0.0)
    hosts = [(f"{number}{said[:100]}", [begins, waits] if number < 50 else []) for number in range(60)]
    ended = {number: number % 4 for number in range(0, 50, 5)}
    for rows in (0, 1, 2, 10, 70):
        for at_work, done in ((hosts, ended), (hosts[:3], ended), (hosts[1:2], {})):
            text = drawn(at_work, done, columns=columns, rows=rows)
            screen = Screen(columns=columns, lines=100)
            screen.feed(text.rstrip("\n").encode())
            # The terminal makes as many rows of it as were drawn: none went on in the next one.
            used = max((place + 1 for place, row in enumerate(screen.rows) if row), default=0)
            assert used <= max(rows, 1)
            assert used <= len(text.splitlines())
