"""The states of random number generators, which Lightning and DeepSpeed do not store: dropout would differ after a
restart."""

from __future__ import annotations

import random
from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """Only what torch.load(weights_only=True) accepts."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    try:
        import numpy
    except ImportError:
        pass
    else:
        state: Any = numpy.random.get_state()
        states["numpy"] = (state[0], state[1].tolist(), *state[2:])
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"].cpu())
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "cuda" in states and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
