"""Horovod's rendezvous over the run's own connection.

Horovod's processes exchange their addresses with an HTTP server that horovodrun starts. Here every worker has a server
of its own, on the loopback device, that passes the keys on to the run's store: no port is open to other machines.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PRESENT_S = 30.0  # longest wait for a key that is there


class Rendezvous:
    """Serves until close(). prefix: of the keys, so that attempts do not see each other's."""

    def __init__(self, session: Any, prefix: str) -> None:
        handler = type("_Handler", (_Handler,), {"session": session, "prefix": prefix})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="horovod-rendezvous", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    session: Any
    prefix: str

    def do_GET(self) -> None:
        """Horovod asks again until the key is there."""
        key = self.prefix + self.path
        if self.session.store_check([key]):
            self._answer(200, self.session.store_get(key, _PRESENT_S))
        else:
            self._answer(404)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.session.store_set(self.prefix + self.path, content)
        self._answer(200)

    def do_DELETE(self) -> None:
        """At the end of a rendezvous, for a server that would use the keys again."""
        self._answer(200)

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the worker's terminal."""
