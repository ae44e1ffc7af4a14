"""DeepSpeed in a TorchTrainer: sharded checkpoints of an engine, for the same or another number of workers.

`deepspeed.initialize()` needs nothing from this module to find the workers.
"""

from __future__ import annotations

from trireme._extras import require_package
from trireme._preload import frameworks_of_main, needs_of
from trireme._runtime import warm_up

__all__ = ["load_checkpoint", "save_checkpoint"]

require_package("deepspeed", ("0.19.",))

from trireme.deepspeed._checkpoint import load_checkpoint, save_checkpoint  # noqa: E402

# The warm process imports DeepSpeed in parallel with the setup of the user's script.
warm_up([*needs_of("deepspeed"), *frameworks_of_main()])
