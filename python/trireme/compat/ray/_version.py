"""Which version of Ray Train the script was written for, by the names and parameters that it uses."""

from __future__ import annotations

import os

_signs: list[str] = []


def note_v1(sign: str) -> None:
    """The script uses something that only the first version has."""
    if sign not in _signs:
        _signs.append(sign)


def is_v1() -> bool:
    """RAY_TRAIN_V2_ENABLED decides, as in Ray; without it, the names that the script has used so far."""
    asked = os.environ.get("RAY_TRAIN_V2_ENABLED")
    if asked is not None:
        return asked.lower() in ("0", "false")
    return bool(_signs)


def reason() -> str:
    """Why the script counts as written for that version."""
    if "RAY_TRAIN_V2_ENABLED" in os.environ:
        return f"RAY_TRAIN_V2_ENABLED={os.environ['RAY_TRAIN_V2_ENABLED']}"
    return f"the script uses {_signs[0]}" if _signs else "the default"
