"""All limits of gpuprep.remote: bytes, seconds and characters that a host may use on the controller."""

from __future__ import annotations

MIB = 1 << 20

# ---------------------------------------------------------------- what a command says
OUTPUT_BYTES = 32 * MIB  # stdout; facts and records are a few hundred kilobytes
ERROR_BYTES = 1 * MIB  # stderr; of more the end stays, with a note
LINE_BYTES = 64 << 10  # one line of a long-running command
NOISE_BYTES = 64 << 10  # what a login shell may print before our command begins
TOLD_LETTERS = 300  # of a host's message that we quote
DOING_BYTES = 1000  # of a line in which a probe says what it is doing
DOING_LETTERS = 80  # of its words that are shown
DOING_A_SECOND = 50  # of these lines; more are left out
MEASURED_BYTES = 1 * MIB  # of a line in which a probe says what it has measured: telemetry of a long run is 100 KB
MEASURED_DEPTH = 8  # keys in the path of a value
MEASURED_IN_ALL = 8 * MIB  # of all these lines of a probe
MEASURED_VALUES = 100_000  # and of the values in them; more are not kept
NAME_LETTERS = 100  # of a user, a machine or a run that a host names

# ---------------------------------------------------------------- how long it may take
COMMAND_SECONDS = 600.0  # default of a command
FILE_SECONDS = 300.0  # one file, put or get
SEND_SECONDS = 30.0  # a few bytes to a long-running command
CONNECT_TIMES = 4  # limit of the whole connect, in connect time-outs: each part has its own
GRACE_SECONDS = 3.0  # for a running step to end after its time limit
STOP_SECONDS = 1.5  # the same when the user stops the run, which ends within 5 s
STOPPED_SECONDS = 1.0  # for a killed command to end after a stop
FAREWELL_SECONDS = 5.0  # for a command to end after its input is closed

# ---------------------------------------------------------------- what the protocol may carry
BANNER_BYTES = 64 << 10  # all that an SSH server sends before the key exchange
PACKET_BYTES = 256 << 10  # one SSH packet, as in OpenSSH
WINDOW_BYTES = 4 * MIB  # unread bytes of a channel: twice what we allow in flight

# ---------------------------------------------------------------- the user's own files
KNOWN_HOSTS_BYTES = 16 * MIB  # of one file; its lines are read one by one
CONFIG_BYTES = 16 * MIB  # of ~/.ssh/config and all that it includes
CONFIG_FILES = 1000
