"""Makes a failing plan smaller: drops steps, columns of results and rows as long as it still fails."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Plan = dict[str, Any]


def shrunk(plan: Plan, fails: Callable[[Plan], bool], tries: int = 200) -> Plan:
    best = plan
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(best):
            tries -= 1
            if tries <= 0:
                break
            if fails(smaller):
                best, progress = smaller, True
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Large cuts first."""
    steps = plan["dataset"]["steps"]
    for index in range(len(steps)):
        smaller = copy.deepcopy(plan)
        del smaller["dataset"]["steps"][index]
        yield smaller
    for index, step in enumerate(steps):
        for number, other in enumerate(step.get("others", [])):
            if other["steps"]:
                smaller = copy.deepcopy(plan)
                smaller["dataset"]["steps"][index]["others"][number]["steps"] = []
                yield smaller
    for index, table in enumerate(plan["tables"]):
        rows = len(table["rows"])
        size = rows
        while size >= 1:
            for start in range(0, rows, size):
                smaller = copy.deepcopy(plan)
                del smaller["tables"][index]["rows"][start : start + size]
                yield smaller
            size //= 2
