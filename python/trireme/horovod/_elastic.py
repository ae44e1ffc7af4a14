"""hvd.elastic: the committed state survives a failure as a checkpoint of the run.

Horovod's own driver keeps the healthy processes and replaces the others. Trireme starts an attempt on all ranks, so a
state continues from the newest checkpoint that state.commit() has made.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import trireme
from trireme._checkpoint import Checkpoint

_KEY = "horovod_elastic"
# Lists of arrays in which the states for TensorFlow keep what is committed.
_ARRAYS = ("_values", "_saved_model_state", "_saved_optimizer_state")


def continue_from_checkpoints(elastic: ModuleType) -> None:
    """elastic: horovod.common.elastic."""
    # Modules that the warm process has imported have a reference to the original.
    others = [module for name, module in list(sys.modules.items()) if name.startswith("horovod.")]
    for module in (elastic, *others):
        if hasattr(module, "run_fn"):
            setattr(module, "run_fn", _run_fn)  # noqa: B010


def _run_fn(function: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Replaces horovod.common.elastic.run_fn(). An error of a collective ends the attempt, and the next one calls this
    again."""

    @functools.wraps(function)
    def run(state: Any, *arguments: Any, **options: Any) -> Any:
        commits = _load(state)
        state.sync()
        state.commit = _Commit(state, commits)
        return function(state, *arguments, **options)

    return run


class _Commit:
    """Replaces state.commit(). It stays collective, so all ranks make the same reports."""

    def __init__(self, state: Any, commits: int) -> None:
        self._state = state
        self._commit = state.commit
        self._commits = commits

    def __call__(self) -> None:
        self._commit()
        self._commits += 1
        mine = trireme.get_context().get_world_rank() == 0
        stored = {_KEY: {"commits": self._commits, **_committed(self._state)}}
        trireme.report({"commits": self._commits}, checkpoint=Checkpoint.from_dict(stored) if mine else None)


def _committed(state: Any) -> dict[str, Any]:
    arrays = {
        name: [each.numpy() if hasattr(each, "numpy") else each for each in getattr(state, name)]
        for name in _ARRAYS
        if hasattr(state, name)
    }
    handlers = {name: handler.value.state_dict() for name, handler in getattr(state, "_handlers", {}).items()}
    return {"values": dict(state._saved_state), "handlers": handlers, "arrays": arrays}


def _load(state: Any) -> int:
    """The number of commits so far. A checkpoint that the training function has made itself is left to it."""
    checkpoint = trireme.get_checkpoint()
    readable = checkpoint is not None and checkpoint._has_state(checkpoint._where())
    stored = checkpoint.to_dict().get(_KEY) if checkpoint is not None and readable else None
    if stored is None:
        return 0
    for name, content in stored["handlers"].items():
        handler = state._handlers[name]
        handler.value.load_state_dict(content)
        handler.save()
    for name, arrays in stored["arrays"].items():
        if name == "_saved_optimizer_state":
            _build(state, len(arrays))
        setattr(state, name, arrays)
    state._saved_state = stored["values"]
    state.restore()
    return int(stored["commits"])


def _build(state: Any, count: int) -> None:
    """An optimizer of Keras creates its variables in the first step, and Horovod would leave out those that do not
    exist yet, such as moments."""
    if len(state.optimizer.variables()) < count:
        legacy = not hasattr(state.optimizer, "build")  # of keras.optimizers.legacy
        build = state.optimizer._create_all_weights if legacy else state.optimizer.build
        build(state.model.trainable_variables)
    if (found := len(state.optimizer.variables())) != count:
        raise RuntimeError(
            f"the checkpoint has {count} variables of the optimizer, and this one has {found}: continue with the same "
            "optimizer, or start a run under another name"
        )
