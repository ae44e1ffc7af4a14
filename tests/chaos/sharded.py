"""A checkpoint in which every rank stores its own part: rank_0/state.json, rank_1/state.json, and so on."""

from __future__ import annotations

import json
import os
from typing import Any


class Incomplete(Exception):
    """The checkpoint cannot be resumed from."""


def write(folder: str, rank: int, world: int, state: dict[str, Any]) -> None:
    own = os.path.join(folder, f"rank_{rank}")
    os.makedirs(own, exist_ok=True)
    plain = {name: value for name, value in state.items() if name in ("weight", "applied", "next")}
    with open(os.path.join(own, "state.json"), "w") as file:
        json.dump({**plain, "rank": rank, "world": world}, file)


def read(own: str) -> dict[str, Any]:
    with open(os.path.join(own, "state.json")) as file:
        return dict(json.load(file))


def whole(folder: str) -> dict[str, Any]:
    """Rank 0's part, after checking that the parts of all ranks exist."""
    names = sorted(name for name in os.listdir(folder) if name.startswith("rank_"))
    return agree(folder, [read(os.path.join(folder, name)) for name in names])


def agree(where: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Rank 0's part, if every rank of the attempt has stored its part at the same step."""
    told = sorted((part["rank"], part["world"], part["next"]) for part in parts)
    if not parts or told != [(rank, len(parts), parts[0]["next"]) for rank in range(len(parts))]:
        raise Incomplete(f"{where} has (rank, of, next step) {told}")
    return min(parts, key=lambda part: int(part["rank"]))
