"""Hugging Face Accelerate in a TorchTrainer: states as checkpoints of the run, and Accelerate's config files.

A plain `Accelerator()` needs nothing from this module to find the workers.
"""

from __future__ import annotations

from trireme._extras import require_package
from trireme._preload import frameworks_of_main, needs_of
from trireme._runtime import warm_up

__all__ = ["load_config", "load_state", "save_state"]

require_package("accelerate", ("1.",))

from trireme.accelerate._config_file import load_config  # noqa: E402
from trireme.accelerate._state import load_state, save_state  # noqa: E402

# The warm process imports Accelerate in parallel with the setup of the user's script.
warm_up([*needs_of("accelerate"), *frameworks_of_main()])
