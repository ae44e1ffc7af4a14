"""Announced preemptions of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PreemptionInfo:
    """An announced preemption, as returned by `trireme.get_preemption_info()`.

    deadline_ms: when the workers are terminated, in milliseconds since 1970.
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
