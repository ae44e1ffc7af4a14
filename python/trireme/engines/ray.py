"""The engine for Ray: a placement group for each gang, and an actor for the agent of each node."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from trireme.engines._ray_actors import AgentHost, GpuHolder, look_at_nodes, spare_imports
from trireme.engines._route import address_towards
from trireme.engines.adapter import Adapter, AgentStart, GangRequest, Node, Refused, Slot

_INIT_OPTIONS = ("address", "namespace", "runtime_env", "num_cpus", "num_gpus", "resources", "labels")
_OWN_OPTIONS = ("auth_token_path", "driver_resources", "poll_s", "python", "wait_for_nodes")
_HIDDEN_RESOURCES = ("node:", "accelerator_type:", "object_store_memory")


@dataclass
class _Gang:
    request: GangRequest
    group: Any = None
    holders: list[Any] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


class RayAdapter(Adapter):
    name = "ray"
    places = True

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._gangs: dict[int, _Gang] = {}
        self._agents: dict[str, Any] = {}
        self._guard = threading.Lock()
        self._closing = threading.Event()

    # Requests.

    def start(self, options: dict[str, Any]) -> None:
        self._options = options
        self._ray = connect(options)
        spare_imports()
        self._client = self._ray.util.client.ray.is_connected()
        self.driver_host = self._own_address()
        threading.Thread(target=self._watch, args=(float(options.get("poll_s", 1)),), daemon=True).start()

    def _own_address(self) -> str | None:
        """The address of this machine that the cluster's nodes reach."""
        nodes = [node["NodeManagerAddress"] for node in self._alive()]
        others = [address for address in nodes if address_towards(address) != address]
        return address_towards((others or nodes)[0]) if nodes else None

    def nodes(self) -> list[Node]:
        return [
            Node(node["NodeID"], node["NodeManagerHostname"], _countable(node["Resources"]), None, None, _type_of(node))
            for node in self._alive()
        ]

    def _alive(self) -> list[dict[str, Any]]:
        return sorted((n for n in self._ray.nodes() if n["Alive"]), key=lambda node: node["NodeManagerHostname"])

    def reserve(self, request: GangRequest) -> None:
        gang = self._gangs[request.gang] = _Gang(request)
        threading.Thread(target=self._reserve, args=(gang,), name=f"gang-{request.gang}", daemon=True).start()

    def release(self, gang: int) -> None:
        if known := self._gangs.pop(gang, None):
            known.released.set()
            self._remove(known)

    def start_agent(self, start: AgentStart) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Outside of the gang's group, so that the node's warm process outlives the gang.
        actor = (
            self._ray.remote(AgentHost)
            .options(
                num_cpus=0,
                max_concurrency=2,
                scheduling_strategy=NodeAffinitySchedulingStrategy(start.node, soft=False),
            )
            .remote()
        )
        with self._guard:
            self._agents[start.agent] = actor
        end = actor.run.remote(start.argv, start.env, start.ticket, self._options.get("python"))
        end.future().add_done_callback(lambda future: self._agent_ended(start.agent, start.node, future))

    def stop_agent(self, agent: str) -> None:
        with self._guard:
            actor = self._agents.get(agent)
        if actor is not None:
            self._ray.kill(actor)

    def close(self) -> None:
        self._closing.set()
        if hasattr(self, "_ray"):
            self._ray.shutdown()  # the actors and placement groups of this driver end with it

    # Gangs.

    def _reserve(self, gang: _Gang) -> None:
        number = gang.request.gang
        try:
            why = self._place(gang)
            slots = [] if why else self._slots(gang)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        if gang.released.is_set() or why:
            self._remove(gang)
        if gang.released.is_set():
            return
        if why:
            self.reserve_failed(number, why)
        else:
            self.reserved(number, slots)

    def _place(self, gang: _Gang) -> str | None:
        """Waits until the placement group is placed. Returns why it cannot be, otherwise None."""
        from ray.util.placement_group import placement_group, placement_group_table

        request = gang.request
        gang.group = placement_group(
            [_bundle(bundle, request.accelerator_type) for bundle in request.bundles],
            strategy=request.strategy,
            name=f"trireme-{request.run}-{request.gang}-{os.getpid()}",
            bundle_label_selector=request.label_selector,
        )
        deadline = time.monotonic() + request.timeout_s
        waiting = False
        while not gang.group.wait(0.25):
            if gang.released.is_set():
                return None
            state = placement_group_table(gang.group)["stats"]["scheduling_state"]
            if state == "INFEASIBLE" and not self._options.get("wait_for_nodes"):
                return f"this Ray cluster can never place it: {self._arithmetic(request)}"
            full = state in ("NO_RESOURCES", "INFEASIBLE")
            if full and request.optional:
                return f"no room now: {self._arithmetic(request)}"
            if time.monotonic() > deadline:
                return f"Ray has not placed it within {request.timeout_s:g} s ({state}): {self._arithmetic(request)}"
            if full and not waiting:
                waiting = True
                self.reserve_waiting(request.gang, f"Ray's resources are in use: {self._arithmetic(request)}")
        return None

    def _slots(self, gang: _Gang) -> list[Slot]:
        from ray.util.placement_group import placement_group_table

        places = placement_group_table(gang.group)["bundles_to_node_id"]
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in self._ray.nodes()}
        gpus = self._gpus(gang)
        return [Slot(places[i], hosts[places[i]], gpus[i]) for i in range(len(gang.request.bundles))]

    def _gpus(self, gang: _Gang) -> list[list[str]]:
        """The ids that Ray has chosen for each bundle. Only an actor that occupies the GPUs sees them."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        answers: dict[int, Any] = {}
        for index, bundle in enumerate(gang.request.bundles):
            if bundle.get("GPU"):
                strategy = PlacementGroupSchedulingStrategy(gang.group, placement_group_bundle_index=index)
                options = {"num_cpus": 0, "num_gpus": bundle["GPU"], "scheduling_strategy": strategy}
                holder = self._ray.remote(GpuHolder).options(**options).remote()
                gang.holders.append(holder)
                answers[index] = holder.gpus.remote()
        return [self._ray.get(answers[i]) if i in answers else [] for i in range(len(gang.request.bundles))]

    def _remove(self, gang: _Gang) -> None:
        from ray.util.placement_group import remove_placement_group

        if gang.group is not None:
            remove_placement_group(gang.group)  # ends the actors in it too

    def _arithmetic(self, request: GangRequest) -> str:
        asked: dict[str, int] = {}
        for index, bundle in enumerate(request.bundles):
            text = _text(_bundle(bundle, request.accelerator_type))
            if request.label_selector and request.label_selector[index]:
                text += f" on nodes with {request.label_selector[index]}"
            asked[text] = asked.get(text, 0) + 1
        wanted = " and ".join(f"{count} x {text}" for text, count in asked.items())
        nodes = self._alive()
        has = [f"{node['NodeManagerHostname']} {_text(_countable(node['Resources']))}" for node in nodes]
        more = f" and {len(has) - 8} more" if len(has) > 8 else ""
        free = _text(_countable(self._ray.available_resources()))
        return f"asked for {wanted} ({request.strategy}), nodes are {', '.join(has[:8])}{more}; {free} are free in all"

    # Agents and nodes.

    def _agent_ended(self, agent: str, node: str, future: Future[tuple[str, str]]) -> None:
        with self._guard:
            self._agents.pop(agent, None)
        if self._closing.is_set():
            return
        try:
            how, said = future.result()
        except Exception as error:  # whatever Ray raises: the actor died, its node died, it could not be scheduled
            how, said = f"Ray: {type(error).__name__}", str(error).strip().splitlines()[-1] if str(error) else ""
        self.agent_exited(agent, f"{how}: {said}" if said else how)

    def _watch(self, poll_s: float) -> None:
        alive: set[str] | None = None
        draining: set[str] = set()
        # A client has no connection to the cluster's state, but its tasks have.
        remote = self._ray.remote(num_cpus=0)(look_at_nodes) if self._client else None
        while not self._closing.wait(poll_s):
            try:
                hosts, drained = self._ray.get(remote.remote()) if remote else look_at_nodes()
            except Exception:
                continue  # Ray's head restarts, or this process ends: heartbeats find lost nodes too
            if alive is not None:
                for node in alive - set(hosts):
                    self.node_lost(node, "Ray reports it as dead")
                if set(hosts) - alive:
                    self.room_grew()
            alive = set(hosts)
            for node, deadline in drained.items():
                if node not in draining:
                    seconds = max(0.0, deadline / 1000 - time.time()) if deadline else None
                    self.preempt(node, f"Ray drains node {hosts.get(node, node)}", seconds)
            draining = set(drained)


def connect(options: dict[str, Any]) -> Any:
    """The module `ray`, connected to the cluster that the engine's options describe."""
    import logging

    unknown = sorted(set(options) - {"argument"} - set(_INIT_OPTIONS) - set(_OWN_OPTIONS))
    if unknown:
        known = ", ".join(sorted((*_INIT_OPTIONS, *_OWN_OPTIONS)))
        raise Refused(f"unknown option of the ray engine: {unknown[0]}. The options are: {known}")
    if argument := options.pop("argument", None):
        # --engine ray:10.0.0.1:6379, or ray://10.0.0.1:10001 as Ray itself writes it
        options.setdefault("address", f"ray:{argument}" if argument.startswith("//") else argument)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if path := options.get("auth_token_path"):
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=os.path.expanduser(path))
    ray = _import_ray()
    given = {name: options[name] for name in _INIT_OPTIONS if options.get(name) is not None}
    address = given.get("address") or os.environ.get("RAY_ADDRESS")
    _expect_listener(address)
    if not (address or "").startswith("ray://"):
        given |= {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    given.setdefault("namespace", "trireme")
    try:
        ray.init(**given)
    except (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = address or "this machine"
        raise Refused(f"Ray at {where} cannot be used: {type(error).__name__}: {str(error).strip()}") from None
    return ray


def _expect_listener(address: str | None) -> None:
    """Ray itself tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # `local`, `auto`, or an address of another kind
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise Refused(f"Ray at {address} does not answer: {error.strerror or error}") from None


def _import_ray() -> Any:
    try:
        import ray
        import ray.util.client
    except ImportError as error:
        raise Refused(f"the ray engine needs Ray: pip install 'trireme[ray]' ({error})") from None
    return ray


def _bundle(resources: dict[str, float], accelerator_type: str | None) -> dict[str, float]:
    """As Ray wants it: no zeros, and not empty."""
    bundle = {name: amount for name, amount in resources.items() if amount}
    if accelerator_type:
        bundle[f"accelerator_type:{accelerator_type}"] = 0.001
    return bundle or {"CPU": 0.001}


def _countable(resources: dict[str, float]) -> dict[str, float]:
    return {
        name: amount
        for name, amount in resources.items()
        if not name.startswith(_HIDDEN_RESOURCES) and "_group_" not in name
    }


def _text(resources: dict[str, float]) -> str:
    parts = [f"{name}: {amount:g}" for name, amount in sorted(resources.items()) if name != "memory"]
    return "{" + ", ".join(parts) + "}"


def _type_of(node: dict[str, Any]) -> str | None:
    names = [name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")]
    return names[0] if names else None


if __name__ == "__main__":
    RayAdapter().serve()
