"""Weighted interleaving of datasets."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trireme.data._column_ops import batch_with
from trireme.data._derived import PiecesFragment, PlansSource
from trireme.data._fragment import Fragment
from trireme.data._fragment_slice import FragmentSlice
from trireme.data._memory import rows_of_batch
from trireme.data._plan import Plan
from trireme.data._promotion import conform
from trireme.data._zip import rows_from

_FRAGMENT_ROWS = 8192


class MixStoppingCondition(enum.Enum):
    """STOP_ON_SHORTEST: the ratio holds for all rows, and the rest of the longer datasets is left out.
    STOP_ON_LONGEST_DROP: all rows of all datasets; a dataset that is exhausted drops out."""

    STOP_ON_SHORTEST = "stop_on_shortest"
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"


class MixedSource(PlansSource):
    """Row j of a dataset with weight w is due at the time (j + 0.5) / w; rows are ordered by time.

    Every fragment has the rows of a period, so the ratio also holds after fragments are shuffled.
    """

    name = "mix"

    def __init__(self, plans: Sequence[Plan], weights: Sequence[float], stop: MixStoppingCondition) -> None:
        super().__init__(plans)
        self._weights = [weight / sum(weights) for weight in weights]
        self._stop = stop

    def _make(self) -> list[Fragment]:
        plans, schema = self.alike(), self.schema()
        counts = [plan.rows() for plan in plans]
        size = _fragment_rows(plans, sum(counts))
        times = _times(counts, self._weights, self._stop, size)
        edges = [
            [_rows_before(time, weight, count) for time in times]
            for weight, count in zip(self._weights, counts, strict=True)
        ]
        parts = [plan.cuts(edge) for plan, edge in zip(plans, edges, strict=True)]
        return [
            MixedFragment(
                [part[index] for part in parts], [edge[index] for edge in edges], self._weights, schema, index
            )
            for index in range(len(times) - 1)
            if any(part[index] for part in parts)
        ]


class MixedFragment(PiecesFragment):
    """Rows of several datasets, each from a first row on."""

    def __init__(
        self,
        parts: Sequence[Sequence[FragmentSlice]],
        starts: Sequence[int],
        weights: Sequence[float],
        schema: pa.Schema,
        index: int,
    ) -> None:
        pieces = [piece for part in parts for piece in part]
        super().__init__(f"mix, part {index}, from {pieces[0].name}", pieces)
        self.version = f"[{weights!r}, {self.version}]"
        self._parts = [list(part) for part in parts]
        self._starts = list(starts)
        self._weights = list(weights)
        self._schema = schema

    def batches(self, columns: Sequence[str] | None = None, row: int = 0) -> tuple[Iterator[pa.RecordBatch], int]:
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        return self._mixed(schema, row), row

    def _mixed(self, schema: pa.Schema, row: int) -> Iterator[pa.RecordBatch]:
        tables, times = [], []
        for part, start, weight in zip(self._parts, self._starts, self._weights, strict=True):
            if part:
                batches = [conform(batch, self._schema, self.name) for batch in rows_from(part, 0)]
                tables.append(pa.Table.from_batches(batches, self._schema).select(schema.names))
                times.append((start + np.arange(sum(map(len, batches))) + 0.5) / weight)
        order = np.argsort(np.concatenate(times), kind="stable")[row:]
        if not len(schema):
            yield batch_with([], schema, len(order))
            return
        mixed = pa.concat_tables(tables).take(pa.array(order))
        yield from mixed.to_batches(max_chunksize=rows_of_batch(mixed.nbytes / max(mixed.num_rows, 1)))


def checked_weights(weights: Any, count: int) -> list[float]:
    if weights is None:
        return [1.0] * count
    given = list(weights)
    if len(given) != count:
        raise ValueError(f"mix(weights={given}): {len(given)} weights for {count} datasets; pass one for each")
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            raise ValueError(f"mix(weights={given}): a weight is {weight!r}; expected a number above 0")
    return [float(weight) for weight in given]


def _rows_before(time: float, weight: float, count: int) -> int:
    return count if math.isinf(time) else min(max(math.ceil(time * weight - 0.5), 0), count)


def _times(counts: Sequence[int], weights: Sequence[float], stop: MixStoppingCondition, size: int) -> list[float]:
    """The ends of periods with about `size` rows each."""
    ends = sorted(count / weight for count, weight in zip(counts, weights, strict=True))
    if stop is MixStoppingCondition.STOP_ON_SHORTEST:
        ends = ends[:1]
    times = [0.0]
    for begin, end in itertools.pairwise([0.0, *ends]):
        rate = sum(w for n, w in zip(counts, weights, strict=True) if n / w > begin)
        periods = math.ceil((end - begin) * rate / size)
        times.extend(begin + (end - begin) * period / periods for period in range(1, periods))
        if end > times[-1]:
            times.append(end)
    if stop is MixStoppingCondition.STOP_ON_LONGEST_DROP:
        times[-1] = math.inf  # every row, whatever was rounded
    return times


def _fragment_rows(plans: Sequence[Plan], rows: int) -> int:
    size = sum(piece.size_bytes or 0 for plan in plans for piece in plan.pieces())
    return rows_of_batch(size / max(rows, 1), _FRAGMENT_ROWS)
