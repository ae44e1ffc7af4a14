"""Timed epochs, shared by the scripts of all variants."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

BATCH = 4096
EPOCHS = int(os.environ.get("BENCH_EPOCHS", "2"))


def epochs(begin: Callable[[], Iterable[Any]], rows_of: Callable[[Any], int]) -> dict[str, Any]:
    """For each epoch: seconds, CPU seconds of this process, and seconds from the call to the first batch."""
    found: dict[str, Any] = {"epoch_s": [], "cpu_s": [], "first_s": [], "rows": 0, "batches": 0}
    for _ in range(EPOCHS):
        began, cpu, first, rows, batches = time.perf_counter(), time.process_time(), None, 0, 0
        for batch in begin():
            if first is None:
                first = time.perf_counter() - began
            rows += rows_of(batch)
            batches += 1
        found["epoch_s"].append(time.perf_counter() - began)
        found["cpu_s"].append(time.process_time() - cpu)
        found["first_s"].append(first)
        found["rows"], found["batches"] = rows, batches
    return found


def in_lists(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def first_column(batch: dict[str, Any]) -> int:
    return len(next(iter(batch.values())))


def tell(found: dict[str, Any]) -> None:
    Path(os.environ["BENCH_FOLDER"], "found.json").write_text(json.dumps(found))
