"""Rows per second of preprocessors on one thread, next to scikit-learn's on the same arrays: CPU time, best of several.

python bench/data/preprocessors.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn import preprocessing

import trireme.data
from trireme.data import preprocessors

ROWS = int(1_000_000 * float(os.environ.get("BENCH_SIZE", "1")))
REPEAT = 5


def best(function: Callable[[], Any]) -> float:
    """In seconds of CPU, which says more than the clock under load."""
    times = []
    for _ in range(REPEAT):
        begin = time.thread_time()
        function()
        times.append(time.thread_time() - begin)
    return min(times)


def main() -> None:
    random = np.random.default_rng(7)
    numbers = random.normal(3, 2, ROWS)
    words = np.array([f"word {i}" for i in range(100)])[random.integers(0, 100, ROWS)]
    table = pa.table({"x": numbers, "c": pa.array(words)})
    ds = trireme.data.from_arrow(table)
    pairs: list[tuple[str, Any, Any, Any]] = [
        ("StandardScaler", preprocessors.StandardScaler(["x"]), preprocessing.StandardScaler(), numbers[:, None]),
        ("RobustScaler", preprocessors.RobustScaler(["x"]), preprocessing.RobustScaler(), numbers[:, None]),
        ("OrdinalEncoder", preprocessors.OrdinalEncoder(["c"]), preprocessing.OrdinalEncoder(), words[:, None]),
        (
            "OneHotEncoder",
            preprocessors.OneHotEncoder(["c"]),
            preprocessing.OneHotEncoder(sparse_output=False, dtype=np.uint8),
            words[:, None],
        ),
        (
            "UniformKBinsDiscretizer",
            preprocessors.UniformKBinsDiscretizer(["x"], 10),
            preprocessing.KBinsDiscretizer(10, encode="ordinal", strategy="uniform", subsample=None),
            numbers[:, None],
        ),
    ]
    print("| transform | Trireme rows/s | scikit-learn rows/s | Trireme: rows/s |\n|---|---|---|---|")
    for name, ours, theirs, values in pairs:
        ours.fit(ds)
        theirs.fit(values)
        batch = table.select([ours.get_input_columns()[0]])
        mine = best(lambda batch=batch, ours=ours: ours.transform_batch(batch))
        other = best(lambda values=values, theirs=theirs: theirs.transform(values))
        print(f"| {name} | {ROWS / mine:,.0f} | {ROWS / other:,.0f} | {other / mine:.2f}x |")


if __name__ == "__main__":
    main()
