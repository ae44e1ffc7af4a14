"""DataIterator: the batches of one worker, or of everything, in epochs whose place can be stored."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from trireme import _core
from trireme._core import count_of
from trireme.data._formats import Batch, LazyBatch, check_format, in_format, rows
from trireme.data._fragment import DataError
from trireme.data._planned import Planned

# How long a signal (Ctrl-C, a cancel) may wait while no batch is ready.
_WAIT_S = 0.1
_REMOTE_RETRIES = 4
_ROWS_AT_ONCE = 256  # of iter_rows()
_DEFAULT_BUDGET = 2_000_000_000

_running: set[Any] = set()  # passes whose threads read


@atexit.register
def _end_all() -> None:
    """Threads that want the interpreter must not outlive it."""
    for running in list(_running):
        running.close()


@dataclass(frozen=True)
class Part:
    """Which part of a dataset, and with what means. Every worker of a gang has the same but for its rank."""

    name: str = "data"
    rank: int = 0
    world: int = 1
    max_world: int = 1
    equal: bool = False
    seed: int | None = None
    virtual_shards: int | None = None
    threads: int | None = None
    memory_budget: int | None = None
    workers_here: int = 1
    digest_folder: str = ""
    log_rank: int = 0
    log_world: int = 1
    whole: bool = False  # it is not split: every worker sees all rows
    attempt: int = 0
    place_counts: bool = False  # it is stored with checkpoints


class DataIterator:
    """Batches of a dataset, or of a worker's part of it: what get_dataset_shard() gives.

    Every iteration is one epoch. All workers make the same number of steps; no row is lost or repeated. The place in an
    epoch is stored with every checkpoint, and a worker that begins with a checkpoint goes on from there, also with
    another number of workers.
    """

    def __init__(self, planned: Planned, part: Part | None = None) -> None:
        self._planned = planned
        self._part = part or Part(virtual_shards=1)
        self._made: Any = None
        self._passes: set[Any] = set()
        self._process = os.getpid()

    @classmethod
    def of(cls, planned: Planned, *, rank: int, world: int, equal: bool = False) -> DataIterator:
        """One of `world` parts; for one, in the dataset's own order."""
        shards = 1 if world == 1 else None
        seed = planned.shuffle.seed if planned.shuffle is not None else 0
        return cls(planned, Part("data", rank, world, world, equal, seed=seed, virtual_shards=shards))

    def __getstate__(self) -> dict[str, Any]:
        # A copy has a position of its own, which no checkpoint stores: what it takes must not count as what was taken.
        return self.__dict__ | {"_part": replace(self._part, digest_folder=""), "_made": None, "_passes": set()}

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        global_batch_size: int | None = None,
        pad_last: bool = False,
    ) -> Batches:
        """Dicts of arrays ("default", "numpy"), DataFrames ("pandas") or tables ("pyarrow") of this worker's rows.

        batch_size: rows of one worker. global_batch_size: of all workers together, in its place: the same batches
        whatever their number. The last batch of an epoch is shared evenly; drop_last leaves it out where it is short,
        pad_last fills it up with rows of its own. prefetch_batches: how many are put together ahead.
        local_shuffle_buffer_size: rows are shuffled among so many that follow one another.
        """
        check_format(batch_format)
        options = _options(
            batch_size=batch_size if batch_size is not None else self._planned.rows,
            global_batch_size=global_batch_size,
            prefetch_batches=prefetch_batches,
            drop_last=drop_last,
            pad_last=pad_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )
        return Batches(self, options, lambda batches: (in_format(batch, batch_format) for batch in batches))

    def iter_rows(self, *, prefetch_batches: int = 1) -> Batches:
        """This worker's rows, one dict after the other. In a training function the place moves with every row."""
        size = 1 if self._part.place_counts else _ROWS_AT_ONCE
        options = _options(batch_size=size, prefetch_batches=max(prefetch_batches, _ROWS_AT_ONCE // size))
        return Batches(self, options, lambda batches: (row for batch in batches for row in rows(batch)))

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
        global_batch_size: int | None = None,
        pad_last: bool = False,
    ) -> Batches:
        """Dicts of tensors on the worker's device, or what collate_fn makes of a dict of arrays. See iter_batches()."""
        from trireme.data._torch_batches import check_torch, target_device, torch_batches

        check_torch(dtypes, collate_fn, self._planned.schema)
        target = target_device(device)
        options = _options(
            batch_size=batch_size if batch_size is not None else self._planned.rows,
            global_batch_size=global_batch_size,
            prefetch_batches=prefetch_batches,
            drop_last=drop_last,
            pad_last=pad_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            ahead=1 if target.type == "cuda" else 0,
        )
        return Batches(
            self,
            options,
            lambda batches: torch_batches(
                batches, dtypes=dtypes, device=target, collate_fn=collate_fn, pin_memory=pin_memory
            ),
        )

    def iter_tf_batches(self, *, batch_size: int | None = 256, dtypes: Any = None, **options: Any) -> Batches:
        """Dicts of TensorFlow tensors. Options as those of iter_batches()."""
        from trireme.data._tf_batches import import_tensorflow, to_tf_batch

        import_tensorflow("iter_tf_batches()")
        made = self.iter_batches(batch_size=batch_size, **options)
        return Batches(self, made._options, lambda batches: (to_tf_batch(batch, dtypes) for batch in batches))

    def iter_jax_batches(
        self,
        *,
        batch_size: int | None = 256,
        dtypes: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        paddings: Any = None,
        synchronize_batches: bool = False,
        **options: Any,
    ) -> Batches:
        """Dicts of JAX arrays. Options as those of iter_batches(); all workers make the same number of steps anyway."""
        from trireme.data._jax_batches import import_jax, jax_batches

        import_jax()
        made = self.iter_batches(batch_size=batch_size, **options)
        return Batches(
            self,
            made._options,
            lambda batches: jax_batches(
                batches, dtypes=dtypes, collate_fn=collate_fn, paddings=paddings, batch_size=batch_size
            ),
        )

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """A tf.data.Dataset of (features, labels). Options as those of iter_batches(), and Ray's *_type_spec."""
        from trireme.data._tf_batches import to_tf

        return to_tf(self, feature_columns, label_columns, **options)

    def to_torch(self, **options: Any) -> Any:
        """A torch IterableDataset of (features, label); iter_torch_batches() is the newer way."""
        from trireme.data._torch_batches import TorchBatches

        return TorchBatches(self, **options)

    # Where it is.

    @property
    def epoch(self) -> int:
        """The one that is iterated, or that the next iteration begins or goes on with."""
        return int(self._shard().epoch)

    def state(self) -> dict[str, Any]:
        """The place after the batch that was given out last: plain numbers, the same on every worker."""
        return dict(self._shard().state())

    def load_state(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there, also with another number of workers."""
        self._shard().load_state(state)

    state_dict = state
    load_state_dict = load_state

    def schema(self) -> pa.Schema:
        return self._planned.schema

    def count(self) -> int:
        """The rows of the whole dataset."""
        return self._planned.rows

    def materialize(self) -> Any:
        """All of this worker's rows as a dataset in memory; the place does not move."""
        from trireme.data._memory import from_arrow

        part = replace(self._part, digest_folder="")
        tables = list(DataIterator(self._planned, part).iter_batches(batch_size=65536, batch_format="pyarrow"))
        return from_arrow(pa.concat_tables(tables) if tables else self._planned.schema.empty_table())

    def stats(self) -> str:
        """What has been read so far, and how long it was waited for."""
        found = self._shard().stats()
        return (
            f"{count_of(found['rows'], 'row')}, {found['bytes'] / 1e6:.1f} MB in {count_of(found['batches'], 'batch')}"
            f"; waited for them {found['wait_s']:.2f} s; {found['peak_bytes'] / 1e6:.1f} MB held at most"
            + (f"; {count_of(found['retries'], 'read')} tried again" if found["retries"] else "")
        )

    def _close(self) -> None:
        """Ends what is being read; whoever still holds an iteration gets no more from it."""
        for running in list(self._passes):
            running.close()

    def _totals(self) -> dict[str, Any]:
        return dict(self._shard().stats())

    def _position(self) -> dict[str, Any]:
        return {**self._shard().position(), "fingerprint": self._planned.fingerprint}

    def _shard(self) -> Any:
        if self._made is None:
            part, planned = self._part, self._planned
            shuffle = planned.shuffle
            ordering = {
                "shuffle_fragments": shuffle is not None,
                "shuffle_rows": shuffle is not None and shuffle.rows,
                "window_rows": shuffle.window_rows if shuffle is not None else None,
                "virtual_shards": part.virtual_shards,
                "seed": part.seed if part.seed is not None else secrets.randbits(63),
                "costly_rows": planned.costly,
                "memory_budget": part.memory_budget,
            }
            options = {
                "name": part.name,
                "rank": part.rank,
                "world": part.world,
                "max_world": part.max_world,
                "equal": part.equal,
                "threads": part.threads or _threads(part.workers_here),
                "memory_budget": part.memory_budget or _budget(part.workers_here),
                "decoding_bytes": planned.decoding_bytes,
                "read_retries": _REMOTE_RETRIES if planned.remote else 0,
                "digest_folder": part.digest_folder,
                "log_rank": part.log_rank,
                "log_world": part.log_world,
                "whole": part.whole,
                "attempt": part.attempt,
            }
            self._made = _core.DataShard.make(planned.fragments, planned.open, ordering, options)
        return self._made

    def _pass(self, options: dict[str, Any]) -> Iterator[Batch]:
        """One epoch, or the rest of one."""
        process = os.getpid()
        if self._part.place_counts and process != self._process:
            raise RuntimeError(
                f"dataset {self._part.name!r} is iterated in process {process}, which was forked from the worker (pid "
                f"{self._process}) that keeps its position: iterate in the worker itself, not in a DataLoader with "
                "num_workers > 0; DataConfig(num_threads=...) reads in parallel"
            )
        running = self._shard().iterate(options)
        _running.add(running)
        self._passes.add(running)
        try:
            while True:
                if os.getpid() != process:
                    raise RuntimeError(
                        f"an iteration that was begun in process {process} is continued in its forked child "
                        f"{os.getpid()}, which has none of the threads that read for it: begin it in the child"
                    )
                try:
                    batch = running.next(_WAIT_S)
                except RuntimeError as error:
                    explained = self._explained(error)
                    raise explained from explained.__cause__
                if batch is None:
                    return
                if batch is not False:
                    yield LazyBatch(self._planned.schema, batch), batch.tensors()
        finally:
            # A forked child does not let go of it, or it would wait for threads that it does not have.
            if os.getpid() == process:
                _running.discard(running)
                self._passes.discard(running)
                running.close()

    def _explained(self, error: RuntimeError) -> Exception:
        """The exception that Python's side of the reading has raised; the core has its text only."""
        original = self._planned.take_error()
        if isinstance(original, DataError):
            return original
        explained = DataError(str(error))
        explained.__cause__ = original
        return explained

    def __repr__(self) -> str:
        part = self._part
        rows = count_of(self._planned.rows, "row")
        return f"DataIterator({part.name}, part {part.rank} of {part.world}, {rows} in all)"


class Batches:
    """What iter_batches() and its like return: each iteration is an epoch, or the rest of the one that was begun."""

    def __init__(
        self, source: DataIterator, options: dict[str, Any], make: Callable[[Iterator[Batch]], Iterable[Any]]
    ) -> None:
        self._source = source
        self._options = options
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        batches = self._source._pass(self._options)
        made = iter(self._make(batches))
        return _closing(made, batches)


def _closing(made: Iterator[Any], batches: Iterator[Any]) -> Iterator[Any]:
    """Whoever leaves the loop leaves the epoch, whatever stands between."""
    try:
        yield from made
    finally:
        batches.close()  # type: ignore[attr-defined]


def _options(**options: Any) -> dict[str, Any]:
    """Refused before anything is read."""
    for name, value in options.items():
        if value is None or name in ("drop_last", "pad_last"):
            continue
        least = 0 if name in ("prefetch_batches", "local_shuffle_seed", "ahead") else 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r}: expected a whole number")
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
    return {name: value for name, value in options.items() if value is not None}


def _threads(workers_here: int) -> int:
    return 2 if len(os.sched_getaffinity(0)) >= 2 * workers_here else 1


def _budget(workers_here: int) -> int:
    """A fourth of the machine's memory, shared by its workers."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_DEFAULT_BUDGET, machine // 4 // max(workers_here, 1))
