"""Runs the user's program as if it had been started from the shell: its output, its signals, its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from gpuprep.errors import UsageError

# What is passed on. A terminal sends Ctrl-C to the program itself, too: that one is not sent twice.
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KERNEL = 0x80  # si_code SI_KERNEL: a terminal sent it to all of its foreground processes


def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """The program's exit code; 128 and the signal's number where a signal ended it. Raises UsageError."""
    waited = {*PASSED, signal.SIGCHLD}
    # Signals are waited for, not handled: what comes before the program is there is not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        try:
            child = subprocess.Popen(
                list(words),
                env=dict(environment),
                preexec_fn=lambda: _as_a_shell_would(before),
            )
        except OSError as error:
            raise UsageError(
                f"{words[0]} cannot be started: {error.strerror}", "give a program as in a shell"
            ) from error
        while child.poll() is None:
            _wait(child, waited)
    finally:
        _forget(waited)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _as_a_shell_would(mask: set[int]) -> None:
    """In the child, before the program: no signal is blocked or handled as in gpuprep."""
    for number in PASSED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: subprocess.Popen[bytes], waited: set[signal.Signals]) -> None:
    received = signal.sigtimedwait(waited, 1.0)
    if received is None or received.si_signo == signal.SIGCHLD:
        return
    if received.si_code == FROM_KERNEL and _in_our_group(child):
        return
    child.send_signal(received.si_signo)


def _in_our_group(child: subprocess.Popen[bytes]) -> bool:
    try:
        return os.getpgid(child.pid) == os.getpgrp()
    except ProcessLookupError:
        return False


def _forget(waited: set[signal.Signals]) -> None:
    """Signals that came while the program ended were for it."""
    while signal.sigpending() & waited and signal.sigtimedwait(waited, 0) is not None:
        pass
