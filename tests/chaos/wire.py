"""A client of a run's controller, written from docs/wire_protocol.md: sends requests and invalid data."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELLO, WELCOME, REPLY, GET_STACKS, PREEMPT_RUN, SET_CAPACITY = 1, 2, 22, 35, 36, 37
VERSION_AT = 7  # in the challenge: after "trireme", before the nonce


def pack(value: Any) -> bytes:
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return b"\xd3" + struct.pack(">q", value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case list():
            return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
        case dict():
            return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise TypeError(type(value).__name__)


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def _proof(secret: bytes, parts: list[bytes]) -> bytes:
    return hmac.new(secret, b"".join(b"%d:" % len(part) + part for part in parts), hashlib.sha256).digest()


class Controller:
    """The controller of an active run, from its entry in the registry."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.address: str = entry["address"]
        self.secret = bytes.fromhex(entry["secret"])
        self.run_id: str = entry["id"]

    @classmethod
    def of(cls, state_dir: Path, run_id: str) -> Controller | None:
        try:
            entry = json.loads((state_dir / "runs" / f"{run_id}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return cls(entry) if entry.get("address") else None

    def connect(self) -> socket.socket:
        if self.address.startswith("unix:@"):
            unix = socket.socket(socket.AF_UNIX)
            unix.settimeout(10)
            unix.connect("\0" + self.address.removeprefix("unix:@"))
            return unix
        # Python's TLS has no pre-shared keys.
        ours, theirs = socket.socketpair()
        key = _proof(self.secret, [b"tls"]).hex()
        options = ["-connect", self.address.removeprefix("tls://"), "-tls1_3", "-psk_identity", "run", "-psk", key]
        cipher = ["-ciphersuites", "TLS_AES_128_GCM_SHA256"]
        with theirs:  # the process ends with our end of the pair, or with the connection
            subprocess.Popen(
                ["openssl", "s_client", *options, *cipher, "-quiet", "-no_ign_eof", "-nocommands"],
                stdin=theirs,
                stdout=theirs,
                stderr=subprocess.DEVNULL,
            )
        ours.settimeout(10)
        return ours

    def connect_without_tls(self) -> socket.socket:
        host, port = self.address.removeprefix("tls://").rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=10)

    def attack_tls(self, dice: random.Random) -> None:
        """Peers without a key of the run: the controller must end the handshake."""
        connection = self.connect_without_tls()
        with connection:
            if dice.random() < 0.5:
                connection.sendall(dice.randbytes(dice.randrange(1, 3000)))
                connection.shutdown(socket.SHUT_WR)
                return _read_to_the_end(connection)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            try:
                with context.wrap_socket(connection) as secured:
                    secured.recv(1)
            except (ssl.SSLError, ConnectionError):
                return
            raise AssertionError("the controller has completed a TLS handshake with a peer without a key")

    def hello(self, challenge: bytes, secret: bytes | None = None, role: str = "client", **changes: Any) -> bytes:
        rank, attempt, pid = changes.get("rank", 0), changes.get("attempt", 0), os.getpid()
        nonce, run_id = os.urandom(32), changes.get("run_id", self.run_id)
        version = changes.get("version", challenge[VERSION_AT])
        numbers = f"{version}/{rank}/{attempt}/{pid}"
        parts = [
            b"hello",
            challenge[VERSION_AT + 1 :],
            nonce,
            run_id.encode(),
            role.encode(),
            numbers.encode(),
            b"here",
            b"",
        ]
        fields = [HELLO, version, run_id, role, rank, attempt, pid, "here", "", nonce]
        return frame(pack([*fields, _proof(self.secret if secret is None else secret, parts)]))

    def join(self, **changes: Any) -> socket.socket:
        connection = self.connect()
        challenge = _receive(connection)
        connection.sendall(self.hello(challenge, **changes))
        _receive(connection)  # the welcome
        return connection

    def ask(self, number: int, *fields: Any) -> bytes:
        """Returns the raw reply, without decoding it."""
        with self.join() as connection:
            connection.sendall(frame(pack([number, 1, *fields])))
            return _receive(connection)


def _receive(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">I", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError("closed by the controller")
        data += more
    return data


def annoy(controller: Controller, dice: random.Random, connected: bool) -> None:
    """One connection that the controller must survive. It may close it or not answer.

    connected: whether rank 0 has joined. Before that, a peer with the secret that claims to be rank 0 would be rank 0.
    """
    kind = dice.randrange(9)
    connection = controller.connect()
    with connection:
        challenge = _receive(connection)
        connection.settimeout(0.2)
        noise = dice.randbytes(dice.randrange(1, 3000))
        good = controller.hello(challenge)
        match kind:
            case 0:  # noise
                connection.sendall(noise)
            case 1:  # a huge length
                connection.sendall(struct.pack(">I", dice.choice([1025, 0x7FFFFFFF, 0xFFFFFFFF])) + noise)
            case 2:  # an incomplete hello
                connection.sendall(good[: dice.randrange(1, len(good))])
                return
            case 3:  # a wrong secret
                connection.sendall(controller.hello(challenge, secret=dice.randbytes(32)))
            case 4:  # a valid hello with some bytes changed
                changed = bytearray(good)
                for _ in range(dice.randrange(1, 5)):
                    changed[dice.randrange(len(changed))] = dice.randrange(256)
                connection.sendall(changed)
            case 5:  # a worker with the secret, of another attempt, rank or run
                strange: dict[str, Any] = dice.choice(
                    [{"attempt": 99}, {"rank": 9999}, {"rank": -1}, {"run_id": "x"}, {"version": 99}]
                )
                connection.sendall(controller.hello(challenge, role="worker", **strange))
            case 6 if connected:  # a worker that is already connected
                connection.sendall(controller.hello(challenge, role="worker"))
            case 7:  # a client that sends garbage after the hello
                connection.sendall(good)
                _receive(connection)
                connection.sendall(dice.choice([noise, frame(noise), frame(pack([dice.randrange(64), *range(3)]))]))
            case 8:  # a client that sends messages of workers or of the controller
                connection.sendall(good)
                _receive(connection)
                for message in ([5], [9, None, False], [10, "E", "m", "t", None], [20, 1, 0], [3, 1], [6, 0, {}, None]):
                    connection.sendall(frame(pack(message)))
        _read_to_the_end(connection)


def _read_to_the_end(connection: socket.socket) -> None:
    try:
        while connection.recv(4096):
            pass
    except (TimeoutError, ConnectionError, ssl.SSLError):
        return


def fuzz(controller: Controller, dice: random.Random, connections: int, connected: Callable[[], bool]) -> int:
    """Returns the number of connections made; fewer than requested if the run ended first."""
    for count in range(connections):
        try:
            if controller.address.startswith("tls://"):
                controller.attack_tls(random.Random(count))
            annoy(controller, dice, connected())
        except (ConnectionError, TimeoutError, ssl.SSLError, BrokenPipeError):
            if Path("/proc/net/unix").exists() and not _reachable(controller):
                return count
    return connections


def _reachable(controller: Controller) -> bool:
    try:
        if controller.address.startswith("tls://"):
            controller.connect_without_tls().close()
        else:
            controller.connect().close()
    except OSError:
        return False
    return True
