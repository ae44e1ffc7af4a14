"""When the training loop of a framework asks for preemptions: about once a second, in the same steps on all ranks."""

from __future__ import annotations

import time

from trireme import collective
from trireme._preemption import PreemptionInfo
from trireme._session import get_preemption_info

_INTERVAL_S = 1.0


class PreemptionWatch:
    """Every question is a collective, so that all ranks act in the same step. Rank 0 measures how long steps take."""

    def __init__(self) -> None:
        self._steps_left = 1
        self._steps = 1
        self._asked = time.monotonic()
        self._known: PreemptionInfo | None = None

    def step(self) -> bool:
        """Call it after every step. Whether a preemption has been announced since the last call that returned True."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        info = get_preemption_info()
        passed = max(time.monotonic() - self._asked, 1e-6)
        # Twice as many at most: steps may become slower.
        wanted = min(2 * self._steps, max(1, round(self._steps * _INTERVAL_S / passed)))
        self._steps = self._steps_left = collective.broadcast_from_rank_zero(wanted)
        self._asked = time.monotonic()
        announced = info is not None and info != self._known
        self._known = info
        return announced
