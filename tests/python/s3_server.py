"""An S3 endpoint on loopback: moto in a separate process, behind a proxy that can be closed for a while."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from processes import MARK, wait_until

_KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
_SERVE = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Door:
    """Forwards connections to a port. When closed, it drops open and new connections."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[socket.socket] = set()
        self._shut = False
        self.refused = 0  # connections since it was closed
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        self._shut = False

    def shut(self) -> None:
        self._shut, self.refused = True, 0
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._shut:
                self.refused += 1
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._connections |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._connections.discard(end)


class S3Server:
    """Its buckets are deleted when it stops."""

    def __init__(self, folder: Path) -> None:
        # It serves many tests, so it must not look like a process left by one of them.
        env = {name: value for name, value in os.environ.items() if name != MARK.partition("=")[0]}
        for _ in range(3):  # another process may take the port in between
            self._port = free_port()
            with open(folder / "moto.log", "wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _SERVE, str(self._port)], stdout=log, stderr=log, env=env
                )
            assert wait_until(lambda: self._process.poll() is not None or self._answers()), "moto does not answer"
            if self._process.poll() is None:
                break
        assert self._process.poll() is None, (folder / "moto.log").read_text()
        self.door = Door(self._port)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/moto-api/"):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        self.door.shut()
        self._process.kill()
        self._process.wait()


class Bucket:
    """A new bucket, and the ways to access it."""

    def __init__(self, server: S3Server) -> None:
        self.door = server.door
        self.name = f"bucket-{uuid.uuid4().hex[:8]}"
        # Environment variables for pyarrow: a plain s3:// URI uses this server.
        self.variables = {**_KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.door.port}"}
        self.filesystem = self.connect(allow_bucket_creation=True)
        self.filesystem.create_dir(self.name)

    def connect(self, **options: Any) -> Any:
        import pyarrow.fs

        return pyarrow.fs.S3FileSystem(
            access_key="testing",
            secret_key="testing",
            endpoint_override=f"127.0.0.1:{self.door.port}",
            scheme="http",
            region="us-east-1",
            **options,
        )

    def uri(self, path: str) -> str:
        return f"s3://{self.name}/{path}"

    def objects(self) -> list[str]:
        """All keys on the server, including markers of empty folders."""
        import xml.etree.ElementTree as xml

        with urllib.request.urlopen(f"http://127.0.0.1:{self.door.port}/{self.name}?list-type=2") as answer:
            tree = xml.fromstring(answer.read())
        return sorted(str(key.text) for key in tree.iter() if key.tag.endswith("}Key"))
