"""The resources that tasks and actors reserve. Workers of trainers have their own account, in Trireme's core."""

from __future__ import annotations

from typing import Any


class Resources:
    def __init__(self, totals: dict[str, float]) -> None:
        self._totals = dict(totals)
        self._free = dict(totals)

    def impossible(self, wanted: dict[str, float]) -> str:
        """Why this request can never be met; empty: it can."""
        for name, amount in wanted.items():
            if amount > self._totals.get(name, 0.0):
                return (
                    f"needs {amount:g} {name} of {self._totals.get(name, 0.0):g}: ask for less, or declare more with "
                    f"ray.init(num_cpus=..., num_gpus=..., resources=...)"
                )
        return ""

    def take(self, holder: Any) -> bool:
        wanted: dict[str, float] = holder.resources
        if any(amount > self._free.get(name, 0.0) + 1e-9 for name, amount in wanted.items()):
            return False
        self.add(wanted, -1)
        return True

    def add(self, amounts: dict[str, float], sign: int) -> None:
        for name, amount in amounts.items():
            self._free[name] = self._free.get(name, 0.0) + sign * amount

    def free(self) -> dict[str, float]:
        return {name: max(amount, 0.0) for name, amount in self._free.items() if amount > 0}
