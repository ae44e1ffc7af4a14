"""What a run of compatibility mode tells its workers, and the variables of Ray that have a meaning here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trireme import _core

REPORT_VARIABLE = "TRIREME_COMPAT_REPORT"


@dataclass(frozen=True)
class RunSettings:
    """Sent to every worker with the training function."""

    v1: bool
    barrier: bool  # report() waits for all ranks
    experiment_name: str
    trial_name: str
    trial_id: str
    trial_resources: dict[str, float]
    worker_callbacks: tuple[Any, ...] = ()
    stop: Any = None  # RunConfig(stop=...)
    around: Any = None  # creates the context manager around the training function
    collective_timeout_s: float | None = None
    configured: Any = None  # Configured: datasets that a DataConfig of the script divides
    group_callbacks: tuple[Any, ...] = ()  # WorkerGroupCallbacks, which rank 0 calls


def reports_wait() -> bool:
    asked = os.environ.get(REPORT_VARIABLE, "barrier")
    if asked not in ("barrier", "free"):
        raise _core.ConfigError(f"{REPORT_VARIABLE}={asked!r}: expected barrier (as in Ray) or free")
    return asked == "barrier"


def seconds(variable: str) -> float | None:
    """The value of one of Ray's variables; None if it is not set."""
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise _core.ConfigError(f"{variable}={text!r}: expected a number of seconds") from None
