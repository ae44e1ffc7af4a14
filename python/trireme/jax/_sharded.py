"""Checkpoints of sharded arrays, written by Orbax: every worker stores its part, any number of workers can load it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from trireme._checkpoint import Checkpoint, _temporary_directory
from trireme._session import current_session

# Orbax reads it without Trireme: StandardCheckpointer().restore(os.path.join(checkpoint.path, "state")).
FOLDER = "state"
_SHOWN = 8


def save_sharded(state: Any) -> Checkpoint:
    """Return a checkpoint with this worker's part of a pytree, for report(). Every worker must call both functions.

    Each shard of an array is stored by the worker that holds its first copy. Values that are not divided between the
    workers, such as numbers and NumPy arrays, are those of rank 0.
    """
    session = current_session("save_sharded")
    folder = _temporary_directory(keep=False)
    with _orbax() as checkpointer:
        checkpointer.save(os.path.join(folder, FOLDER), jax.tree.map(_to_store, state))
    _remove_what_rank_0_stores(session, folder)
    made = Checkpoint.from_directory(folder)
    made._temporary = True
    return made


def load_sharded(checkpoint: Checkpoint | str | os.PathLike[str], state: Any) -> Any:
    """Return the pytree of a checkpoint, with the structure, types and shardings of `state`. Every worker must call it.

    state: for example the state at the start of the training, or jax.ShapeDtypeStruct with shardings in place of its
    arrays. Its shardings may differ from those of the checkpoint, and so may the number of workers: each worker reads
    only the files that overlap its part.
    """
    source = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    with source.as_directory() as folder:
        stored = os.path.join(folder, FOLDER)
        if not os.path.isdir(stored):
            raise FileNotFoundError(
                f"load_sharded(): {source.path} has no folder {FOLDER!r}; it loads checkpoints of save_sharded()"
            )
        target = jax.tree.map(_to_restore, state)
        with _orbax() as checkpointer:
            metadata = checkpointer.metadata(stored).item_metadata
            if metadata is None:
                raise FileNotFoundError(
                    f"load_sharded(): {source.path} is incomplete: rank 0 has not stored its part; load a checkpoint "
                    "that every rank has reported with report()"
                )
            _compare(metadata.tree, target, source.path)
            arguments = ocp.checkpoint_utils.construct_restore_args(target)
            found = checkpointer.restore(stored, item=target, restore_args=arguments)
    return jax.tree.map(_as_in, found, state)


@contextmanager
def _orbax() -> Iterator[Any]:
    """A checkpointer for this process alone, whose files are one per shard, so that the folders of all ranks can be
    merged: Orbax by itself needs a file system that all of them share."""
    rank = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=None, active_processes={rank}, barrier_sync_key_prefix=f"trireme_{rank}"
    )
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, multiprocessing_options=alone)
    with _quiet(), ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        yield checkpointer


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Orbax's warnings that the number of processes has changed, which is intended here."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _remove_what_rank_0_stores(session: Any, folder: str) -> None:
    """Files with the same name have the same content, apart from times: those of rank 0 are kept."""
    rank = session.context.get_world_rank()
    names = set(session.broadcast_from_rank_zero(_files_in(folder) if rank == 0 else None))
    if rank > 0:
        for name in names.intersection(_files_in(folder)):
            os.unlink(os.path.join(folder, name))


def _files_in(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    ]


def _to_store(leaf: Any) -> Any:
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    # Orbax refuses arrays of one process: optimizers create their counters so.
    return np.asarray(leaf) if _is_local(leaf) else leaf


def _to_restore(leaf: Any) -> Any:
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    whole = _is_local(leaf) or (isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None)
    return np.empty(leaf.shape, leaf.dtype) if whole else leaf


def _as_in(found: Any, leaf: Any) -> Any:
    if not _is_local(leaf):
        return found
    if _is_key(leaf):
        found = jax.random.wrap_key_data(found, impl=jax.random.key_impl(leaf))
    # An array that is not bound to a device can be used together with those of other devices.
    return jax.device_put(found, leaf.sharding) if leaf.committed else jax.numpy.asarray(found)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_local(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.is_fully_addressable


def _compare(stored: Any, state: Any, name: str) -> None:
    """Raises if names, shapes or types differ: Orbax would cast, and cut arrays or fill them with zeros."""
    theirs, ours = _kinds(stored), _kinds(state)
    problems = [f"missing: {place}" for place in ours.keys() - theirs.keys()]
    problems += [f"unexpected: {place}" for place in theirs.keys() - ours.keys()]
    for place in ours.keys() & theirs.keys():
        if theirs[place] != ours[place]:
            problems.append(f"{place}: stored {theirs[place]}, the state has {ours[place]}")
    if problems:
        problems.sort()
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise ValueError(
            f"load_sharded(): {name} does not fit the state to load into:\n  " + "\n  ".join(problems[:_SHOWN] + more)
        )


def _kinds(tree: Any) -> dict[str, str]:
    """The shape and type of every array, by its name, and "a value" for anything else."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = getattr(leaf, "shape", ()) != () and getattr(leaf, "dtype", None) is not None
        kind = f"{tuple(leaf.shape)} {np.dtype(leaf.dtype).name}" if array else "a value"
        found[jax.tree_util.keystr(path, simple=True, separator="/")] = kind
    return found
