"""Workers that will be lost, as somebody has announced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PreemptionInfo:
    """What `trireme.get_preemption_info()` returns once a reclaim was announced.

    deadline_ms: when they will be gone, in milliseconds since 1970.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)


def preemption_info(told: dict[str, Any] | None) -> PreemptionInfo | None:
    return None if told is None else PreemptionInfo(round(told["deadline"] * 1000), told["nodes"])
