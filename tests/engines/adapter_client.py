"""The driver's end of the adapter protocol, for tests of adapters: see docs/engines.md."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from machines import wait_for

# Stands in for `trireme agent`: prints nothing, records what it was given, and ends like it when its input ends.
AGENT = """
import json, os, signal, socket, sys
folder = sys.argv[1]
ticket = sys.stdin.readline().strip()
def record(name, value):
    with open(os.path.join(folder, name + ".new"), "w") as file:
        json.dump(value, file)
    os.rename(file.name, os.path.join(folder, name))
name = os.environ["AGENT"]
signal.signal(signal.SIGTERM, lambda *_: record(name + ".term", True))
space = os.readlink("/proc/self/ns/pid")
record(name, {"ticket": ticket, "host": socket.gethostname(), "pid": os.getpid(), "argv": sys.argv,
              "command": open("/proc/self/cmdline").read(), "env": dict(os.environ), "python": sys.executable,
              "cpus": len(os.sched_getaffinity(0))})
if os.environ.get("AGENT_EXIT"):
    print("agent failed on purpose", file=sys.stderr)
    sys.exit(int(os.environ["AGENT_EXIT"]))
while sys.stdin.readline():
    pass
record(name + ".eof", True)
"""


class AdapterClient:
    """An adapter in a process of its own. `prefix` is a command that runs it elsewhere: `nsenter ...`."""

    def __init__(
        self, module: str, env: Mapping[str, str] = os.environ, prefix: Callable[[list[str]], list[str]] = list
    ) -> None:
        here, there = socket.socketpair()
        self.process = subprocess.Popen(
            prefix([sys.executable, "-m", module]),
            env={**env, "TRIREME_ENGINE_FD": str(there.fileno())},
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        )
        there.close()
        self._socket = here
        self._numbers = iter(range(1, 1 << 30))
        self._arrived = threading.Condition()
        self.events: list[dict[str, Any]] = []
        self._open = True
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        with contextlib.suppress(ConnectionResetError), self._socket.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                with self._arrived:
                    self.events.append(json.loads(line))
                    self._arrived.notify_all()
        with self._arrived:
            self._open = False
            self._arrived.notify_all()

    def send(self, do: str, **fields: Any) -> None:
        self._socket.sendall((json.dumps({"do": do, **fields}) + "\n").encode())

    def ask(self, do: str, **fields: Any) -> Any:
        """The value of the answer. Raises its failure as a RuntimeError."""
        number = next(self._numbers)
        self.send(do, id=number, **fields)
        answer = self.wait("answer", id=number)
        if "failure" in answer:
            raise RuntimeError(answer["failure"])
        return answer["value"]

    def start(self, **options: Any) -> dict[str, Any]:
        return self.ask("start", version=1, options=options)

    def wait(self, *names: str, timeout: float = 90.0, **fields: Any) -> dict[str, Any]:
        """The next event with one of these names and these fields, which is then removed from `events`."""

        def position() -> int | None:
            for index, event in enumerate(self.events):
                if event["event"] in names and all(event.get(name) == value for name, value in fields.items()):
                    return index
            return None

        with self._arrived:
            self._arrived.wait_for(lambda: position() is not None or not self._open, timeout)
            index = position()
            assert index is not None, f"no {' or '.join(names)} {fields} among {self.events}; open: {self._open}"
            return self.events.pop(index)

    def reserve(self, gang: int, bundles: Sequence[Mapping[str, float]], **fields: Any) -> None:
        request = {
            "run": "test",
            "trainer": {"CPU": 1},
            "strategy": "PACK",
            "accelerator_type": None,
            "label_selector": None,
            "timeout_s": 60,
            "optional": False,
            **fields,
        }
        self.send("reserve", gang=gang, bundles=list(bundles), **request)

    def start_agent(self, agent: str, node: str, folder: os.PathLike[str], **env: str) -> None:
        argv = [sys.executable, "-c", AGENT, os.fspath(folder)]
        self.send(
            "start_agent", agent=agent, node=node, argv=argv, env={"AGENT": agent, **env}, ticket=f"secret-{agent}"
        )

    def kill(self) -> None:
        """kill -9 of the adapter itself: nsenter starts it as a child if the machine has its own processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        entered = os.readlink(f"/proc/{self.process.pid}/exe").endswith("nsenter")
        os.kill(int(children[0]) if entered else self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """The driver has ended."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.process.wait(60)


def recorded(folder: Path, agent: str) -> Any:
    """What this agent was given, as soon as it runs."""
    return json.loads(wait_for(lambda: (folder / agent).exists() and (folder / agent).read_text(), f"{agent} runs"))


def processes_with(folder: Path) -> list[int]:
    """The processes with a folder in their command line, on any machine."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.fsencode(folder) in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found
