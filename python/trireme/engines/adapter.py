"""The base class of engine adapters: the other end of the protocol that docs/engines.md describes.

An adapter is a process that the driver starts and talks to over one socket. It knows a cluster's nodes, starts one
agent on each node that a run uses, and reports what happens to nodes. The agents start the workers.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any

PROTOCOL_VERSION = 1
DESCRIPTOR_VARIABLE = "TRIREME_ENGINE_FD"


class Refused(Exception):
    """Raised by an adapter's methods: the text is shown to the user, without a traceback."""


@dataclass
class Node:
    """One machine. `total` and `gpus` are None if the agent on the node should find them out."""

    id: str
    host: str
    total: dict[str, float] | None = None
    available: dict[str, float] | None = None  # None: as `total`
    gpus: list[str] | None = None  # as in CUDA_VISIBLE_DEVICES
    accelerator_type: str | None = None


@dataclass
class Slot:
    """Where a bundle was placed."""

    node: str
    host: str
    gpus: list[str] = field(default_factory=list)


@dataclass
class GangRequest:
    """All or nothing: one bundle per worker."""

    gang: int
    run: str
    bundles: list[dict[str, float]]
    trainer: dict[str, float]
    strategy: str  # PACK, SPREAD, STRICT_PACK or STRICT_SPREAD
    accelerator_type: str | None
    label_selector: list[dict[str, str]] | None  # of each bundle, or None
    timeout_s: float
    optional: bool  # refuse it at once if its resources are in use


@dataclass
class AgentStart:
    """A process to start on a node. The ticket is a secret: write it to the process's standard input as one line."""

    agent: str
    node: str
    argv: list[str]  # argv[0] is the driver's interpreter; replace it if the node has another one
    env: dict[str, str]  # to be added to the node's environment
    ticket: str


class Adapter:
    """Subclass it, implement the methods, and end the file with `MyAdapter().serve()`.

    The methods are called one after another on the main thread and must return soon. The functions below them report
    events and may be called from any thread.
    """

    name = "custom"
    # True: the cluster places bundles itself, so reserve() and release() are implemented. False: the driver places
    # bundles on the nodes that nodes() lists.
    places = False
    # Where the driver should listen, so that agents can reach it: a host name or an address of this machine. None: the
    # address that this host's name resolves to.
    driver_host: str | None = None

    def start(self, options: dict[str, Any]) -> None:
        """Connect to the cluster. `options` are the user's engine options. Raise Refused if it cannot be used."""

    def nodes(self) -> list[Node]:
        """The nodes that this run may use now."""
        raise NotImplementedError

    def reserve(self, request: GangRequest) -> None:
        """Answer with reserved() or reserve_failed(), now or later."""
        raise NotImplementedError

    def release(self, gang: int) -> None:
        """Free the resources of a gang, or cancel a pending request. The gang may already be unknown."""
        raise NotImplementedError

    def start_agent(self, start: AgentStart) -> None:
        """Start the agent's process on its node. Report its end with agent_exited()."""
        raise NotImplementedError

    def stop_agent(self, agent: str) -> None:
        """Make sure that the agent's process ends. It has been asked to exit, and may have ended already."""
        raise NotImplementedError

    def time_left(self, node: str) -> float | None:
        """Seconds until the cluster takes this node away; None: unknown. Asked when its agent has got a SIGTERM."""
        return None

    def close(self) -> None:
        """The driver has ended: release everything. Agents that are left are stopped."""

    # Events.

    def reserved(self, gang: int, slots: list[Slot]) -> None:
        self._send("reserved", gang=gang, slots=[asdict(slot) for slot in slots])

    def reserve_failed(self, gang: int, why: str) -> None:
        self._send("reserve_failed", gang=gang, why=why)

    def reserve_waiting(self, gang: int, why: str) -> None:
        """The request can be satisfied, but not now."""
        self._send("reserve_waiting", gang=gang, why=why)

    def agent_exited(self, agent: str, why: str) -> None:
        """`why`: "exit code 1", "ssh: connect to host b: connection refused". Also if it could not be started."""
        self._send("agent_exited", agent=agent, why=why)

    def node_lost(self, node: str, why: str) -> None:
        """Only speeds up the detection: the driver notices silent agents by itself."""
        self._send("node_lost", node=node, why=why)

    def preempt(self, node: str, why: str, seconds: float | None = None) -> None:
        """The node will be preempted in this many seconds; None: unknown."""
        self._send("preempt", node=node, why=why, seconds=seconds)

    def room_grew(self) -> None:
        """More resources may be available than before."""
        self._send("room_grew")

    def warn(self, message: str) -> None:
        self._send("warning", message=message)

    def serve(self) -> None:
        """Handle the driver's requests until it ends. Exits the process."""
        number = os.environ.pop(DESCRIPTOR_VARIABLE, None)
        if number is None:
            sys.exit(f"{self.name}: an engine adapter is started by trireme; use trireme.init(engine={self.name!r})")
        self._lock = threading.Lock()
        self._socket = socket.socket(fileno=int(number))
        self._socket.set_inheritable(False)
        try:
            with self._socket.makefile("r", encoding="utf-8") as requests:
                for line in requests:
                    self._handle(json.loads(line))
        except OSError:
            pass  # the driver was killed
        finally:
            self.close()

    def _handle(self, request: dict[str, Any]) -> None:
        do = request.pop("do")
        number = request.pop("id", None)
        try:
            answer = self._perform(do, request)
        except Refused as refused:
            self._fail(number, do, request, str(refused))
        except Exception as error:
            traceback.print_exc()
            self._fail(number, do, request, f"{type(error).__name__}: {error}")
        else:
            if number is not None:
                self._send("answer", id=number, value=answer)

    def _perform(self, do: str, request: dict[str, Any]) -> Any:
        if do == "start":
            if request["version"] != PROTOCOL_VERSION:
                raise Refused(f"protocol {request['version']} is not supported; this adapter speaks {PROTOCOL_VERSION}")
            self.start(request["options"])
            return {
                "version": PROTOCOL_VERSION,
                "name": self.name,
                "places": self.places,
                "driver_host": self.driver_host,
            }
        if do == "nodes":
            return [asdict(node) for node in self.nodes()]
        if do == "time_left":
            return self.time_left(request["node"])
        if do == "reserve":
            self.reserve(GangRequest(**request))
        elif do == "release":
            self.release(request["gang"])
        elif do == "start_agent":
            self.start_agent(AgentStart(**request))
        elif do == "stop_agent":
            self.stop_agent(request["agent"])
        return None

    def _fail(self, number: int | None, do: str, request: dict[str, Any], why: str) -> None:
        if number is not None:
            self._send("answer", id=number, failure=why)
        elif do == "reserve":
            self.reserve_failed(request["gang"], why)
        elif do == "start_agent":
            self.agent_exited(request["agent"], why)
        else:
            self.warn(f"{do}: {why}")

    def _send(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        try:
            with self._lock:
                self._socket.sendall(line.encode())
        except OSError:
            pass  # the driver has ended; serve() notices it too
