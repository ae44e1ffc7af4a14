"""The lazy form of a dataset: a source and the operations on its rows."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from trireme._core import count_of
from trireme.data._column_ops import ColumnOp, DropColumns, FilterExpression, SelectColumns
from trireme.data._context import DataContext
from trireme.data._fragment import Fragment, FunctionOp, Op, Source, Where
from trireme.data._fragment_slice import FragmentSlice, apply, function_processes, rows_in
from trireme.data._promotion import promoted

# A trial call on a few rows determines the output of a function. A fast one is tried on more rows, to find rare cases.
_FIRST_TRIED_ROWS = 32
_TRIED_ROWS = 1024
_QUICK_SECONDS = 0.03
# A message is printed if counting takes longer.
_QUIET_SECONDS = 1.0


@dataclass(frozen=True)
class Shuffle:
    """A new order in every epoch: of rows (random_shuffle), or of fragments (randomize_block_order).

    own: the seed for reading the rows outside of training, if the user sets none.
    """

    seed: int | None = None
    rows: bool = True
    window_rows: int | None = None
    own: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32), compare=False, repr=False)


class Plan:
    """A source, or a parent plan and one more op. Everything is computed on demand and cached.

    The shuffle is applied last, whatever follows it: operations on single rows do not depend on the order, and
    operations that do (limit, split, zip, ...) execute the shuffle first.
    """

    def __init__(
        self, source: Source, parent: Plan | None = None, op: Op | None = None, shuffle: Shuffle | None = None
    ) -> None:
        self.source = source
        self.parent = parent
        self.op = op
        self.shuffle = shuffle
        self._pieces: list[FragmentSlice] | None = None
        self._schema: pa.Schema | None = None
        self._tried: list[pa.RecordBatch] | None = None
        self._kept_rows = True
        self._known_op: Op | None = None
        self._pushed: Plan | None = None
        self.carried_out: Plan | None = None  # the same rows in shuffled order

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tried": None}

    def then(self, op: Op) -> Plan:
        return Plan(self.source, self, op, self.shuffle)

    def shuffled(self, shuffle: Shuffle | None) -> Plan:
        """The same plan with another shuffle, which replaces an earlier one."""
        if shuffle is self.shuffle:
            return self
        plan = object.__new__(Plan)
        plan.__dict__.update(self.__dict__, shuffle=shuffle, carried_out=None)
        return plan

    def ops(self) -> tuple[Op, ...]:
        return () if self.parent is None or self.op is None else (*self.parent.ops(), self.op)

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def pieces(self) -> list[FragmentSlice]:
        """In order, before any shuffle. Their rows may be uncounted."""
        if self._pieces is None:
            pushed = self._pushed_down()
            if pushed is not None:
                self._pieces = pushed.pieces()
            elif self.parent is None:
                self._pieces = [_piece_of(fragment) for fragment in self.source.fragments()]
            else:
                op = self._resolved()
                self._pieces = [piece.then(op) for piece in self.parent.pieces()]
        return self._pieces

    def in_stream(self) -> list[FragmentSlice]:
        """The same, for reading all rows in order without a count: needs no trial calls of functions."""
        if self._pieces is None and self.parent is not None and self.op is not None and self._pushed_down() is None:
            op = self.op if _functions(self.ops()) else self._resolved()
            return [piece.then(op) for piece in self.parent.in_stream()]
        return self.pieces()

    def has_functions(self) -> bool:
        return any(piece.has_functions for piece in self.pieces())

    def count(self) -> None:
        """Determines the number of rows of each slice."""
        unknown = [piece for piece in self.pieces() if piece.rows is None]
        if not unknown:
            return
        columns = self._counting_columns()
        parts = count_of(len(self.pieces()), "part")
        told = _Told(f"counting the rows of {self.source.name} ({len(unknown)} of {parts})")
        processes = function_processes(piece.counted for piece in unknown)
        if processes == 0:
            # This process does not call user functions from several threads.
            for piece in unknown:
                rows_in(piece, columns=columns, tick=told)
            return
        stopped = threading.Event()

        def stop() -> None:
            if stopped.is_set():
                raise InterruptedError

        with ThreadPoolExecutor(max(os.cpu_count() or 1, processes or 1), "trireme-count") as threads:
            waiting = {threads.submit(rows_in, piece, None, columns, stop) for piece in unknown}
            try:
                while waiting:
                    done, waiting = wait(waiting, timeout=told.patience(), return_when=FIRST_COMPLETED)
                    told()
                    for future in done:
                        future.result()
            except BaseException:  # a file that cannot be read, Ctrl-C
                stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def rows(self) -> int:
        self.count()
        return sum(piece.rows or 0 for piece in self.pieces())

    def cut(self, start: int, stop: int | None) -> list[FragmentSlice]:
        """Rows [start, stop), or fewer if the dataset ends before. Does not count beyond `stop`."""
        if stop is None:
            stop = self.rows()
        parts: list[FragmentSlice] = []
        at = 0
        columns = self._counting_columns()
        for piece in self.pieces():
            if at >= stop:
                break
            rows = rows_in(piece, stop - at, columns)
            low = max(start - at, 0)
            if rows > low:
                parts.append(piece.cut(low, rows))
            at += rows
        return parts

    def cuts(self, edges: Sequence[int]) -> list[list[FragmentSlice]]:
        """Rows between these edges, which are ascending and within the dataset. One pass over the slices."""
        self.count()
        parts: list[list[FragmentSlice]] = []
        pieces, at = iter(self.pieces()), 0
        piece, rows = None, 0
        for start, stop in pairwise(edges):
            part: list[FragmentSlice] = []
            low = start
            while low < stop:
                while piece is None or at + rows <= low:
                    at += rows
                    piece = next(pieces)
                    rows = piece.rows or 0
                high = min(stop, at + rows)
                part.append(piece.cut(low - at, high - at))
                low = high
            parts.append(part)
        return parts

    def bytes_per_row(self) -> float | None:
        """The size of an output row, if functions change it; None: the size of an input row."""
        if not self.has_functions():
            return None
        tried = self._try()
        rows = _rows(tried)
        return sum(batch.nbytes for batch in tried) / rows if rows else None

    def _find_schema(self) -> pa.Schema:
        if self.parent is None or self.op is None:
            return self.source.schema()
        schema = self.op.schema(self.parent.schema())
        if schema is not None:
            return schema
        tried = self._try()
        if not tried:
            return self.parent.schema()
        *_, last = promoted(tried, None, self.op.name)
        return last.schema

    def _resolved(self) -> Op:
        """The op, completed by the results of a trial call."""
        assert self.op is not None and self.parent is not None
        if self._known_op is None:
            if isinstance(self.op, DropColumns):
                schema = self.parent.schema()
                self.op.check(schema)
                self._known_op = SelectColumns(self.op.kept(schema))
            elif self.op.keeps_rows is None:
                self._try()
                self._known_op = _with_keeps(self.op, self._kept_rows)
            else:
                if isinstance(self.op, ColumnOp) and not _functions(self.parent.ops()):
                    self.schema()  # reports errors before anything is read
                self._known_op = self.op
        return self._known_op

    def _try(self) -> list[pa.RecordBatch]:
        """The first rows of the output; empty only if the output is."""
        if self._tried is not None:
            return self._tried
        inner = getattr(self.source, "plan", None)
        if self.parent is None and isinstance(inner, Plan):
            self._tried = self._try_part(inner, *self.source.span)  # type: ignore[attr-defined]
            return self._tried
        if self.parent is None or self.op is None or not (_functions(self.ops()) or self.parent.has_functions()):
            self._tried = _first_rows(self.pieces())  # reads only the needed columns
            return self._tried
        given = self.parent._try()
        self._tried, used = _tried(self.op, given, self.parent.source.name) if given else ([], 0)
        self._kept_rows = _rows(self._tried) == used
        if given and not _rows(self._tried):
            pieces = [piece.then(_with_keeps(self.op, False)) for piece in self.parent.pieces()]
            self._tried = _first_rows(pieces) or self._tried[:1]
        return self._tried

    def _try_part(self, inner: Plan, start: int, stop: int | None) -> list[pa.RecordBatch]:
        """Functions that follow are never tried on rows outside of the part."""
        if start == 0:
            return list(_head(inner._try(), stop))
        pieces = self.pieces()
        if inner.has_functions():
            pieces = [piece.cut(0, min(piece.rows or 0, _FIRST_TRIED_ROWS)) for piece in pieces]
        return _first_rows(pieces)

    def _pushed_down(self) -> Plan | None:
        """The same plan without this filter, if the source can filter while it reads."""
        if self._pushed is not None or not isinstance(self.op, FilterExpression) or self.parent is None:
            return self._pushed
        below, selections = self.parent._pushed_down() or self.parent, []
        while below.parent is not None and isinstance(below.op, (SelectColumns, DropColumns)):
            selections.append(below._resolved())
            below = below.parent._pushed_down() or below.parent
        if below.parent is not None:
            return None
        self.op.schema(self.parent.schema())  # reports errors in the same way as without push-down
        source: Source | None = below.source
        for condition in self.op.conditions:
            source = None if source is None else source.with_filter(condition)
        if source is not None:
            self._pushed = Plan(source)
            for selection in reversed(selections):
                self._pushed = self._pushed.then(selection)
        return self._pushed

    def root(self) -> Plan:
        """The plan that only has the source."""
        plan = self
        while plan.parent is not None:
            plan = plan.parent
        return plan

    def _counting_columns(self) -> list[str] | None:
        """The column to read from files that must be read to count their rows: the narrowest."""
        if all(piece.rows is not None for piece in self.pieces()):
            return None
        fields: list[pa.Field] | None = None
        plan: Any = self
        while isinstance(plan, Plan):  # the fragments may be those of a plan in the source, without columns added later
            root = plan.root()
            if not root.source.own_columns:
                return None
            schema = root.schema()
            fields = [field for field in (schema if fields is None else fields) if field.name in schema.names]
            plan = getattr(root.source, "plan", None)
        assert fields is not None
        numbers = [field for field in fields if pa.types.is_primitive(field.type)]
        narrow = min(numbers, key=lambda field: field.type.bit_width, default=fields[0] if fields else None)
        return None if narrow is None else [narrow.name]


class _Told:
    """Prints one line if counting takes long."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = time.monotonic()
        self._done = False

    def patience(self) -> float | None:
        """The time until the line may have to be printed."""
        left = self._begin + _QUIET_SECONDS - time.monotonic()
        return None if self._done or left < 0 else left + 0.01

    def __call__(self) -> None:
        if (
            not self._done
            and DataContext.get_current().enable_progress_bars
            and time.monotonic() - self._begin > _QUIET_SECONDS
        ):
            self._done = True
            print(f"trireme.data: {self._text}", file=sys.stderr, flush=True)


def _functions(ops: tuple[Op, ...]) -> bool:
    return any(isinstance(op, FunctionOp) for op in ops)


def _piece_of(fragment: Fragment) -> FragmentSlice:
    return fragment if isinstance(fragment, FragmentSlice) else FragmentSlice(fragment)


def _with_keeps(op: Op, keeps_rows: bool) -> Op:
    """A copy of the op that shares its state: an instance of a user class is not created again."""
    changed = object.__new__(type(op))
    changed.__dict__.update(op.__dict__)
    changed.keeps_rows = keeps_rows
    return changed


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _head(batches: list[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows is None or rows > 0:
            yield batch.slice(0, rows)
        rows = None if rows is None else rows - batch.num_rows


def _tried(op: Op, given: list[pa.RecordBatch], name: str) -> tuple[list[pa.RecordBatch], int]:
    """The output of the op for these rows, or for the first ones, and the number of input rows."""
    few = [given[0].slice(0, _FIRST_TRIED_ROWS)]
    begin = time.monotonic()
    made = list(apply((op,), iter(few), Where(name)))
    rest = [given[0].slice(_FIRST_TRIED_ROWS), *given[1:]]
    if not _rows(rest) or time.monotonic() - begin > _QUICK_SECONDS:
        return made, _rows(few)
    return [*made, *apply((op,), iter(rest), Where(name, _FIRST_TRIED_ROWS))], _rows(given)


def _first_rows(pieces: list[FragmentSlice]) -> list[pa.RecordBatch]:
    for piece in pieces:
        for batch in piece.batches()[0]:
            if batch.num_rows:
                return [batch.slice(0, _TRIED_ROWS)]
    return []
