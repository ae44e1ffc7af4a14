"""The summary of a dataset and of its last read on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from trireme._core import count_of
from trireme.data._plan import Plan


@dataclass
class Reading:
    """One pass over the rows on the driver."""

    rows: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    complete: bool = False

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Measures the time spent waiting for rows, not the time spent using them."""
        while True:
            begin = time.monotonic()
            batch = next(batches, None)
            self.seconds += time.monotonic() - begin
            if batch is None:
                self.complete = True
                return
            self.rows += batch.num_rows
            self.size_bytes += batch.nbytes
            yield batch

    def __str__(self) -> str:
        rate = f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds > 0 else ""
        part = "" if self.complete else " (incomplete)"
        return f"{self.rows:,} rows{part}, {self.size_bytes / 1e6:,.1f} MB in {self.seconds:.3f} s{rate}"


def describe(plan: Plan, reading: Reading | None) -> str:
    steps = [plan.source.name, *(op.name for op in plan.ops())]
    pieces = plan.pieces()
    counted = [piece.rows for piece in pieces if piece.rows is not None]
    rows = f"{sum(counted):,} rows" if len(counted) == len(pieces) else "rows not counted"
    lines = [" -> ".join(steps), f"{count_of(len(pieces), 'fragment')}, {rows}"]
    if plan.shuffle is not None:
        what = "rows" if plan.shuffle.rows else "fragments"
        lines.append(f"shuffled: {what}, seed {plan.shuffle.seed}")
    lines.append(f"last read on the driver: {reading}" if reading is not None else "not read on the driver yet")
    return "\n".join(lines)
