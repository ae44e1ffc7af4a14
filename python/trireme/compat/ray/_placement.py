"""Placement groups: everything runs on this machine, so a group that its resources allow is ready at once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_groups: dict[str, PlacementGroup] = {}


class PlacementGroupFactory:
    """The bundles that a trial takes. Trainers read their number of workers and resources from a ScalingConfig."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any) -> None:
        if not bundles:
            raise ValueError("PlacementGroupFactory needs at least one bundle of resources")
        self._bundles = [{name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles]
        self._strategy = strategy

    @property
    def bundles(self) -> list[dict[str, float]]:
        return [dict(bundle) for bundle in self._bundles]

    @property
    def strategy(self) -> str:
        return self._strategy

    @property
    def head_cpus(self) -> float:
        return self._bundles[0].get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        return _total(self._bundles)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and (self._bundles, self._strategy) == (
            other._bundles,
            other._strategy,
        )

    def __hash__(self) -> int:
        return hash((str(self._bundles), self._strategy))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self._bundles}, strategy={self._strategy!r})"


class PlacementGroup:
    """Checked against the resources of the machine. It reserves nothing: tasks and actors take theirs themselves."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str, name: str) -> None:
        self.id = secrets.token_hex(18)
        self.name = name
        self.strategy = strategy
        self.bundle_specs = bundles

    @property
    def bundle_count(self) -> int:
        return len(self.bundle_specs)

    @property
    def is_empty(self) -> bool:
        return not self.bundle_specs

    def ready(self) -> Any:
        from trireme.compat.ray._tasks._api import put

        return put(self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        return True


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str = "PACK",
    name: str = "",
    lifetime: str | None = None,
    **options: Any,
) -> PlacementGroup:
    if strategy not in _STRATEGIES:
        raise ValueError(f"placement_group(strategy={strategy!r}): expected one of {', '.join(_STRATEGIES)}")
    if not isinstance(bundles, list) or not bundles or not all(isinstance(each, dict) and each for each in bundles):
        raise ValueError(f"placement_group(bundles={bundles!r}): expected a list of resources, such as [{{'CPU': 1}}]")
    from trireme.compat.ray._cluster import cluster_resources

    available = cluster_resources()
    for resource, amount in _total(bundles).items():
        if amount > available.get(resource, 0.0):
            raise ValueError(
                f"placement_group: the bundles need {amount:g} {resource}, and this machine has "
                f"{available.get(resource, 0.0):g}; declare more with ray.init()"
            )
    if strategy == "STRICT_SPREAD" and len(bundles) > 1:
        raise ValueError("placement_group(strategy='STRICT_SPREAD') needs one machine per bundle, and there is one")
    made = PlacementGroup(bundles, strategy, name)
    _groups[made.id] = made
    return made


def remove_placement_group(placement_group: PlacementGroup) -> None:
    _groups.pop(placement_group.id, None)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    for group in _groups.values():
        if group.name and group.name == placement_group_name:
            return group
    raise ValueError(f"there is no placement group named {placement_group_name!r}")


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    def described(group: PlacementGroup) -> dict[str, Any]:
        bundles = dict(enumerate(group.bundle_specs))
        return {
            "placement_group_id": group.id,
            "name": group.name,
            "bundles": bundles,
            "strategy": group.strategy,
            "state": "CREATED" if group.id in _groups else "REMOVED",
        }

    if placement_group is not None:
        return described(placement_group)
    return {group.id: described(group) for group in _groups.values()}


def get_current_placement_group() -> None:
    return None


@dataclass
class PlacementGroupSchedulingStrategy:
    """Accepted: all tasks and actors run on this machine."""

    placement_group: Any
    placement_group_bundle_index: int = -1
    placement_group_capture_child_tasks: bool | None = None


@dataclass
class NodeAffinitySchedulingStrategy:
    """Accepted: there is one node."""

    node_id: str
    soft: bool = False
    _spill_on_unavailable: bool = False
    _fail_on_unavailable: bool = False


def get_node_ip_address(address: str | None = None) -> str:
    return "127.0.0.1"


def _total(bundles: list[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + float(amount)
    return total
