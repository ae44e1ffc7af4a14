"""DataIterator: the batches of one worker or of a whole dataset, in epochs whose position can be stored."""

from __future__ import annotations

import atexit
import inspect
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pyarrow as pa

from trireme import _core
from trireme._consumers import ReportingLoop
from trireme._core import count_of
from trireme.data._context import DataContext
from trireme.data._formats import Batch, LazyBatch, check_format, check_nullable, in_format, rows
from trireme.data._fragment import DataError
from trireme.data._planned import Planned
from trireme.data._promotion import one_table

if TYPE_CHECKING:
    from trireme._config import IterBatchesOptions  # only in the generated stub

# How long a signal (Ctrl-C, a cancel) may wait while no batch is ready.
_WAIT_S = 0.1
_ROWS_AT_ONCE = 256  # of iter_rows()
_REPORTED = -1  # instead of a number of batches ahead
_SEEDS = 2**63

_running: set[Any] = set()  # passes whose threads read


@atexit.register
def _end_all() -> None:
    """Threads that need the interpreter must not outlive it."""
    for running in list(_running):
        running.close()


class Part:
    """A part of a dataset and how it is read. Every worker of a gang has the same, except for its rank.

    options: the fields of the core's ShardOptions (src/data/shard.h), which has their defaults.
    seed, virtual_shards: of the order of the rows.
    place_counts: its position is stored with checkpoints.
    """

    def __init__(
        self, *, seed: int | None = None, virtual_shards: int | None = None, place_counts: bool = False, **options: Any
    ) -> None:
        self.seed = seed
        self.virtual_shards = virtual_shards
        self.place_counts = place_counts
        self.options: dict[str, Any] = _core.check_shard_options(options)

    def without_digests(self) -> Part:
        """The same for a reader whose rows do not count as taken."""
        options = {**self.options, "digest_folder": ""}
        return Part(seed=self.seed, virtual_shards=self.virtual_shards, place_counts=self.place_counts, **options)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _with_options(method: _Method) -> _Method:
    """Lists the options in the signature in place of **options, for help() and editors."""
    signature = inspect.signature(method)
    kind = inspect.Parameter.KEYWORD_ONLY
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [
        inspect.Parameter(field["name"], kind, default=field["default"], annotation=field["type"])
        for field in _core.config_schema()["IterBatchesOptions"]
    ]
    method.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return method


class DataIterator:
    """Batches of a dataset, or of a worker's part of it: what get_dataset_shard() returns.

    Every iteration is one epoch. All workers make the same number of steps; no row is lost or repeated. The position in
    an epoch is stored with every checkpoint, and a worker that starts from a checkpoint continues there, also with
    another number of workers.
    """

    def __init__(self, planned: Planned, part: Part | None = None) -> None:
        self._planned = planned
        self._part = part or Part(virtual_shards=1)
        self._made: Any = None
        self._reads: Any = None
        self._passes: set[Any] = set()
        self._process = os.getpid()

    @classmethod
    def of(cls, planned: Planned, *, rank: int, world: int, equal: bool = False) -> DataIterator:
        """One of `world` parts; for one, in the dataset's own order."""
        shards = 1 if world == 1 else None
        seed = planned.shuffle.seed if planned.shuffle is not None else 0
        part = Part(rank=rank, world=world, max_world=world, equal=equal, seed=seed, virtual_shards=shards)
        return cls(planned, part)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has a position of its own, which no checkpoint stores: its rows must not count as taken.
        return self.__dict__ | {"_part": self._part.without_digests(), "_made": None, "_reads": None, "_passes": set()}

    @_with_options
    def iter_batches(
        self, *, batch_format: str | None = "default", nullable: str = "float", **options: Unpack[IterBatchesOptions]
    ) -> Batches:
        """Dicts of arrays ("default", "numpy"), DataFrames ("pandas") or tables ("pyarrow") of this worker's rows.

        batch_size: rows in a batch of one worker; None: all rows.
        global_batch_size: rows in a batch of all workers together; replaces batch_size. The batches are the same for
            any number of workers.
        drop_last, pad_last: the last batch of an epoch is shared evenly. If it is smaller than the others, drop_last
            leaves it out and pad_last fills it by repeating its rows.
        prefetch_batches: number of batches that are prepared ahead.
        local_shuffle_buffer_size, local_shuffle_seed: shuffle rows once more, each among this many consecutive ones.
        nullable: integers with nulls as floats with NaN ("float"), or as masked arrays ("masked"), in numpy batches.
        """
        check_format(batch_format)
        check_nullable(nullable, batch_format)
        checked = self._checked(options)
        return Batches(self, checked, lambda batches: (in_format(batch, batch_format, nullable) for batch in batches))

    def iter_rows(self, *, prefetch_batches: int = 1) -> Batches:
        """This worker's rows, as dicts. In a training function the position moves with every row."""
        size = 1 if self._part.place_counts else _ROWS_AT_ONCE
        options = self._checked({"batch_size": size, "prefetch_batches": max(prefetch_batches, _ROWS_AT_ONCE // size)})
        return Batches(self, options, lambda batches: (row for batch in batches for row in rows(batch)))

    @_with_options
    def iter_torch_batches(
        self,
        *,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        **options: Unpack[IterBatchesOptions],
    ) -> Batches:
        """Dicts of tensors on the worker's device, or what collate_fn makes of a dict of arrays. See iter_batches()."""
        from trireme.data._torch_batches import check_torch, target_device, torch_batches

        check_torch(dtypes, collate_fn, self._planned.schema)
        target = target_device(device)
        return Batches(
            self,
            self._checked(options),
            lambda batches: torch_batches(
                batches, dtypes=dtypes, device=target, collate_fn=collate_fn, pin_memory=pin_memory
            ),
            ahead=1 if target.type == "cuda" else 0,
        )

    @_with_options
    def iter_tf_batches(self, *, dtypes: Any = None, **options: Unpack[IterBatchesOptions]) -> Batches:
        """Dicts of TensorFlow tensors. See iter_batches()."""
        from trireme.data._tf_batches import import_tensorflow, to_tf_batch

        import_tensorflow("iter_tf_batches()")
        checked = self._checked(options)
        return Batches(self, checked, lambda batches: (to_tf_batch(batch, dtypes) for batch in batches))

    @_with_options
    def iter_jax_batches(
        self,
        *,
        dtypes: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        paddings: Any = None,
        synchronize_batches: bool = False,
        **options: Unpack[IterBatchesOptions],
    ) -> Batches:
        """Dicts of JAX arrays. See iter_batches(); all workers make the same number of steps in any case."""
        from trireme.data._jax_batches import import_jax, jax_batches

        import_jax()
        checked = self._checked(options)
        batch_size = None if options.get("batch_size", 0) is None else checked["batch_size"]
        return Batches(
            self,
            checked,
            lambda batches: jax_batches(
                batches, dtypes=dtypes, collate_fn=collate_fn, paddings=paddings, batch_size=batch_size
            ),
        )

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """A tf.data.Dataset of (features, labels). Takes the options of iter_batches(), and Ray's *_type_spec."""
        from trireme.data._tf_batches import to_tf

        return to_tf(self, feature_columns, label_columns, **options)

    def to_torch(self, **options: Any) -> Any:
        """A torch IterableDataset of (features, label); iter_torch_batches() is the newer way."""
        from trireme.data._torch_batches import TorchBatches

        return TorchBatches(self, **options)

    def _checked(self, options: IterBatchesOptions) -> dict[str, Any]:
        """All options with their final values; ConfigError names the one that is wrong, before anything is read."""
        given = {name: value for name, value in options.items() if value is not None}
        if "batch_size" in options and options["batch_size"] is None:
            given["batch_size"] = max(self._planned.rows, 1)
        return _core.check_config("IterBatchesOptions", given)

    # The position.

    def used(self, batches: int) -> None:
        """Called by a ReportingLoop."""
        self._shard().used(batches)

    @property
    def epoch(self) -> int:
        """The current epoch, or the one that the next iteration begins or continues."""
        return int(self._shard().epoch)

    def state(self) -> dict[str, Any]:
        """The position after the last batch that was given out: plain numbers, the same on every worker."""
        return dict(self._shard().state())

    def load_state(self, state: dict[str, Any]) -> None:
        """The next iteration continues at this position, also with another number of workers."""
        self._shard().load_state(state)

    state_dict = state
    load_state_dict = load_state

    def schema(self) -> pa.Schema:
        return self._planned.schema

    def get_context(self) -> DataContext:
        """The settings of this process: in a worker, those of the driver."""
        return DataContext.get_current()

    def count(self) -> int:
        """The number of rows of the whole dataset."""
        return self._planned.rows

    def materialize(self) -> Any:
        """All of this worker's rows as a dataset in memory; the position does not change."""
        from trireme.data._memory import from_arrow

        copy = DataIterator(self._planned, self._part.without_digests())
        tables = list(copy.iter_batches(batch_size=65536, batch_format="pyarrow"))
        batches = [batch for table in tables for batch in table.to_batches()]
        table = one_table(batches, self._planned.name)
        return from_arrow(self._planned.schema.empty_table() if table is None else table)

    def stats(self) -> str:
        """How much has been read so far, and how long the reader waited for it."""
        found = self._shard().stats()
        return (
            f"{count_of(found['rows'], 'row')}, {found['bytes'] / 1e6:.1f} MB in {count_of(found['batches'], 'batch')}"
            f"; waited for them {found['wait_s']:.2f} s; {found['peak_bytes'] / 1e6:.1f} MB held at most"
            + (f"; {count_of(found['retries'], 'read')} tried again" if found["retries"] else "")
        )

    def _close(self) -> None:
        """Ends all reading; iterations that are still held give no more batches."""
        for running in list(self._passes):
            running.close()

    def _totals(self) -> dict[str, Any]:
        return dict(self._shard().stats())

    def _logged_rows(self) -> int | None:
        rows: int | None = self._shard().logged_rows()
        return rows

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
                "seed": part.seed % _SEEDS if part.seed is not None else secrets.randbelow(_SEEDS),
                "costly_rows": planned.costly,
                "memory_budget": part.options["memory_budget"],
            }
            options = {
                **part.options,
                "decoding_bytes": planned.decoding_bytes,
                "remote": planned.remote,
                "function_processes": planned.function_processes(),
            }
            self._reads = planned.reads()
            self._made = _core.DataShard.make(planned.fragments, self._reads.open, ordering, options)
        return self._made

    def _pass(self, options: dict[str, Any], ahead: int = 0, loop: ReportingLoop | None = None) -> Iterator[Batch]:
        """One epoch, or the rest of one."""
        process = os.getpid()
        if self._part.place_counts and process != self._process:
            raise RuntimeError(
                f"dataset {self._part.options['name']!r} is iterated in process {process}, which was forked from the "
                f"worker (pid {self._process}) that keeps its position: iterate in the worker itself, not in a "
                "DataLoader with num_workers > 0; DataConfig(num_threads=...) reads in parallel"
            )
        if self._planned.rows == 0:
            return
        running = self._shard().iterate(options, ahead if loop is None else _REPORTED)
        if loop is not None:
            loop.steps = running.steps
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
                    if self._reads.widen():
                        running.reopen()
                        continue
                    explained = self._explained(error)
                    raise explained from explained.__cause__
                if batch is None:
                    return
                if batch is not False:
                    yield LazyBatch(self._reads.schema, batch), batch.tensors()
        finally:
            # A forked child keeps it: to close it would wait for threads that the child does not have.
            if os.getpid() == process:
                _running.discard(running)
                self._passes.discard(running)
                running.close()

    def _explained(self, error: RuntimeError) -> Exception:
        """The exception that the Python code of a read has raised; the core only has its text."""
        original = self._reads.take_error()
        if isinstance(original, DataError):
            return original
        explained = DataError(str(error))
        explained.__cause__ = original
        return explained

    def __repr__(self) -> str:
        part = self._part.options
        rows = count_of(self._planned.rows, "row")
        return f"DataIterator({part['name']}, part {part['rank']} of {part['world']}, {rows} in all)"


class Batches:
    """What iter_batches() and similar methods return: each iteration is an epoch, or the rest of the current one.

    ahead: how many batches `make` takes before it yields the first.
    """

    def __init__(
        self,
        source: DataIterator,
        options: dict[str, Any],
        make: Callable[[Iterator[Batch]], Iterable[Any]],
        ahead: int = 0,
        loop: ReportingLoop | None = None,
    ) -> None:
        self._source = source
        self._options = options
        self._make = make
        self._ahead = ahead
        self._loop = loop

    def for_consumer_ahead(self, batches: int) -> Batches:
        """The same for a consumer that fetches this many batches before it uses the first: they do not count as used in
        the position of a checkpoint."""
        return Batches(self._source, self._options, self._make, self._ahead + batches)

    def reporting(self, loop: ReportingLoop) -> Batches:
        """The same for a loop that reports how many batches it has used."""
        loop.add(self._source)
        return Batches(self._source, self._options, self._make, loop=loop)

    def __iter__(self) -> Iterator[Any]:
        batches = self._source._pass(self._options, self._ahead, self._loop)
        made = iter(self._make(batches))
        return _closing(made, batches)


def _closing(made: Iterator[Any], batches: Iterator[Any]) -> Iterator[Any]:
    """Leaving the loop abandons the epoch, also if `made` does not close its source."""
    try:
        yield from made
    finally:
        batches.close()  # type: ignore[attr-defined]
