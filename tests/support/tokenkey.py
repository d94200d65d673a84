"""A security token in software: a key file of type sk-ssh-ed25519, and an SSH agent that signs with it.

The file is what `ssh-keygen -t ed25519-sk` writes: it has no secret, only a handle. A real sshd takes the signature.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KIND = b"sk-ssh-ed25519@openssh.com"
APPLICATION = b"ssh:"
TOUCHED = 1
IDENTITIES, SIGN = 11, 13  # requests of the agent's protocol; the answers are one more
FAILURE = 5
LINE = 70


def text(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


class Token:
    """`write` makes the key file and its public half; `serve` is the agent, with the key in it or without."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        point = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.blob = text(KIND, point, APPLICATION)
        self._point = point
        self.public = f"{KIND.decode()} {base64.b64encode(self.blob).decode()} token"

    def write(self, path: Path) -> None:
        secret = struct.pack(">II", 7, 7) + text(KIND, self._point, APPLICATION) + bytes([TOUCHED])
        secret += text(b"handle", b"", b"token")
        secret += bytes(range(1, 1 + -len(secret) % 8))
        body = b"openssh-key-v1\0" + text(b"none", b"none", b"") + struct.pack(">I", 1) + text(self.blob, secret)
        lines = base64.b64encode(body).decode()
        rows = [lines[at : at + LINE] for at in range(0, len(lines), LINE)]
        frame = ["-----BEGIN OPENSSH PRIVATE KEY-----", *rows, "-----END OPENSSH PRIVATE KEY-----", ""]
        path.write_text("\n".join(frame), encoding="ascii")
        path.chmod(0o600)
        path.with_name(f"{path.name}.pub").write_text(f"{self.public}\n", encoding="ascii")

    def serve(self, path: Path, *, holds: bool) -> socket.socket:
        """An agent at this socket until the socket is closed."""
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()
        threading.Thread(target=self._accept, args=(listening, holds), daemon=True).start()
        return listening

    def _accept(self, listening: socket.socket, holds: bool) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection, holds), daemon=True).start()

    def _answer(self, connection: socket.socket, holds: bool) -> None:
        with connection, connection.makefile("rwb") as stream:
            while head := stream.read(4):
                request = stream.read(struct.unpack(">I", head)[0])
                answer = self._reply(request, holds)
                stream.write(text(answer))
                stream.flush()

    def _reply(self, request: bytes, holds: bool) -> bytes:
        if request[0] == IDENTITIES:
            return bytes([IDENTITIES + 1]) + struct.pack(">I", holds) + (text(self.blob, b"token") if holds else b"")
        if request[0] != SIGN or not holds:
            return bytes([FAILURE])
        size = struct.unpack(">I", request[1:5])[0]
        rest = request[5 + size :]
        data = rest[4 : 4 + struct.unpack(">I", rest[:4])[0]]
        state = bytes([TOUCHED]) + struct.pack(">I", 1)
        signed = hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(data).digest()
        return bytes([SIGN + 1]) + text(text(KIND, self._key.sign(signed)) + state)
