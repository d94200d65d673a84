"""Runs one command line: turns every error into lines on stderr and an exit code, and handles Ctrl-C, at one place.

An expected error (GpuprepError) explains itself. An unexpected error is written in full to a file and shown as one
line with the file's path. Its exit code is 3, because the state of the hosts is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import click

from gpuprep.errors import GpuprepError, UsageError
from gpuprep.untrusted.masking import masked, masked_words, misplaced_password, remember_store, remember_words
from gpuprep.untrusted.plaintext import command, visible

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
# timeout(1) and some wrappers signal a program and then its process group: that is one request, not two.
ONE_WISH_SECONDS = 0.3
AGAIN_SECONDS = 0.05
LAST_WORDS = b"Interrupted twice: ended at once. Nothing more is recorded; hosts end what ran there by themselves.\n"


class Stopping:
    """Handles SIGINT and SIGTERM after `install`. The functions in `tidying` are called before the process ends at
    once.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._number: int = signal.SIGINT
        self._tidy: list[Callable[[], None]] = []
        self._otherwise = sys.unraisablehook

    def install(self) -> None:
        """Handle both signals, except one that our parent set to be ignored, such as SIGINT of a background job."""
        self._first = None
        if sys.unraisablehook != self._dropped:
            self._otherwise, sys.unraisablehook = sys.unraisablehook, self._dropped
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(ValueError):  # not in the main thread: whoever started us handles signals
                    signal.signal(number, self._signalled)

    @contextlib.contextmanager
    def tidying(self, what: Callable[[], None]) -> Iterator[None]:
        self._tidy.append(what)
        try:
            yield
        finally:
            self._tidy.remove(what)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._number = now, number
            raise KeyboardInterrupt
        if now - self._first >= ONE_WISH_SECONDS:
            self.at_once()

    def _dropped(self, args: UnraisableHookArgs) -> None:
        """Raise an interrupt again that Python dropped because it came while an object was destroyed."""
        if self._first is None or not issubclass(args.exc_type, KeyboardInterrupt):
            self._otherwise(args)
            return
        self._first = None
        main = threading.main_thread().ident
        assert main is not None  # a thread that runs has one
        again = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (main, self._number))
        again.daemon = True
        again.start()

    def at_once(self) -> None:
        """Call all of `tidying` and end the process. Never returns."""
        try:
            for what in self._tidy:
                with contextlib.suppress(Exception):
                    what()
            with contextlib.suppress(OSError):
                os.write(2, LAST_WORDS)
        finally:
            os._exit(INTERRUPTED)


STOPPING = Stopping()

UNEXPECTED = 3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
OTHERS_WORDS = (("codec", "check"), ("sim", "exec"), ("trace", "record"))  # they take another program's command line
MOST_NAME_BYTES = 255  # of Linux's file systems


@dataclass
class Session:
    """What `run` must know about the command line; click fills it in while parsing."""

    json: bool = False


def run(cli: click.Group, arguments: list[str]) -> int:
    """Run one command line and return its exit code. A second interrupt ends the process (Stopping)."""
    session = Session(json=_asks_for_json(arguments))
    remember_words(arguments)
    STOPPING.install()
    if sys.stdout is None:  # closed by the parent process
        drop_stdout()
    stdout = sys.stdout
    try:
        _refuse_passwords(arguments)
        code = cli.main(args=arguments, prog_name="gpuprep", obj=session, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as raised:
        error = _explained(raised)
        _show_usage(error)
        _json_error(session, masked(error.format_message()), "", error.exit_code)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say_interrupted(arguments)
        return INTERRUPTED
    except GpuprepError as error:
        return _expected(session, error)
    except SystemExit:
        if sys.stdout is stdout:
            raise
        drop_stdout()  # click replaces stdout and leaves when its reader is gone
        return 0
    except Exception as error:  # noqa: BLE001  the edge: whatever is left becomes one line and a log
        if known := _too_long(error, arguments) or _full(error):
            return _expected(session, known)
        return _unexpected(session, error, arguments)


def _refuse_passwords(arguments: list[str]) -> None:
    """Raises UsageError for a password where no command takes one: it would stand in messages, records and logs."""
    if tuple(arguments[:2]) in OTHERS_WORDS:
        for word in itertools.takewhile(lambda word: word != "--", arguments):
            if misplaced_password([word]):
                remember_store(word)
    elif (shown := misplaced_password(word for word in arguments if not os.path.lexists(word))) is not None:
        raise UsageError(
            f"{shown}: a word of this command has a password, or is a store's URL, and only --store takes one",
            "for the store of runs `--store URL`, or GPUPREP_STORE; for a host `USER@HOST` with an SSH key;"
            " the password of sudo is asked for: --ask-become-pass",
        )


def _expected(session: Session, error: GpuprepError) -> int:
    show(error)
    _json_error(session, masked(error.what), masked(error.hint), error.exit_code)
    return error.exit_code


def _full(error: Exception) -> UsageError | None:
    """The UsageError to show if stdout or a file cannot take the result (a full disk); None for every other error."""
    if not isinstance(error, OSError) or error.errno not in FULL or error.filename is not None:
        return None
    drop_stdout()
    why = os.strerror(error.errno or 0)
    return UsageError(f"the result cannot be written: {why}", "make room, or write elsewhere: --output FILE")


def _too_long(error: Exception, arguments: list[str]) -> UsageError | None:
    """The UsageError to show if an argument is too long for a file name; None for every other error."""
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    longest = max(arguments, key=len, default="")
    if len(os.fsencode(longest)) <= MOST_NAME_BYTES:
        return None
    return UsageError(
        f"{longest[:40]}…: too long for the name of a file",
        f"a file's name has at most {MOST_NAME_BYTES} bytes, and a whole path 4095",
    )


def _asks_for_json(arguments: list[str]) -> bool:
    """Whether --json is among the arguments: an option can be wrong before click has read --json.

    Arguments after -- belong to another program.
    """
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours or "--format=json" in ours or ("--format", "json") in itertools.pairwise(ours)


def _explained(error: click.ClickException) -> click.ClickException:
    """The error with a suggestion of what the user meant: click itself suggests only words that are spelt alike."""
    if not isinstance(error, click.NoSuchOption):
        return error
    from gpuprep.cli import suggestions

    return click.UsageError(suggestions.option(error), error.ctx)


def _show_usage(error: click.ClickException) -> None:
    """Show click's own message, masked and with escapes: it quotes words of the command line."""
    buffer = io.StringIO()
    error.show(file=buffer)
    click.echo(masked(visible(buffer.getvalue())), err=True, nl=False)


def show(error: GpuprepError) -> None:
    first, *rest = masked(visible(error.explain())).splitlines() or [type(error).__name__]
    click.echo(f"Error: {first}", err=True)
    for line in rest:
        click.echo(f"  {line}", err=True)


def say_interrupted(arguments: list[str]) -> None:
    again = command("gpuprep", *masked_words(arguments))
    click.echo(
        f"Interrupted. Finished steps stay finished; to continue, run the same command again:\n  {again}", err=True
    )


def _unexpected(session: Session, error: Exception, arguments: list[str]) -> int:
    from gpuprep import errorlog

    text = errorlog.whole(error, f"command: {command('gpuprep', *masked_words(arguments))}")
    what = f"A{errorlog.named(error)[1:]}"
    try:
        path = errorlog.keep(text)
    except (OSError, GpuprepError) as unwritable:
        click.echo(visible(text), err=True)
        click.echo(visible(f"{what} (its log could not be written: {unwritable})"), err=True)
        hint = "the full error is on stderr"
    else:
        click.echo(f"{what}. The full error is in {path}", err=True)
        hint = f"see {path}"
    _json_error(session, what, hint, UNEXPECTED)
    return UNEXPECTED


def _json_error(session: Session, what: str, hint: str, exit_code: int) -> None:
    """With --json, print a JSON document on stdout even if there is only an error to report."""
    if not session.json:
        return
    from gpuprep.records import SCHEMA_VERSION

    document = {"schema_version": SCHEMA_VERSION, "error": {"what": what, "hint": hint}, "exit_code": exit_code}
    try:
        click.echo(json.dumps(document, indent=2))
    except OSError:
        drop_stdout()


def drop_stdout() -> None:
    """The reader of stdout is gone: drop the buffered text, or Python prints an error while it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # stdout is no real file, as under a test runner, or closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
