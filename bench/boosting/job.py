"""What all variants of the job have in common: the rows, the parameters and the stamps of the rounds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

COLUMNS, FILES = 28, 8
ROWS = int(os.environ.get("BENCH_BOOSTING_ROWS", "1_000_000"))  # by default a tenth of HIGGS
FEATURES = [f"x{index}" for index in range(COLUMNS)]
ROUNDS = 50
CHECKPOINTS = 5  # rounds between two, in the run with a failure
_KILLED_AT = 12
_REST_S = 2.0  # a worker dies in the middle of training

PARAMS: dict[str, dict[str, Any]] = {
    "xgboost": {"objective": "binary:logistic", "max_depth": 6, "eta": 0.1, "nthread": 1},
    "lightgbm": {
        "objective": "binary", "num_leaves": 63, "learning_rate": 0.1, "num_threads": 1, "verbosity": -1,
        "tree_learner": "data", "pre_partition": True,
    },
}  # fmt: skip


def write_rows(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    for number in range(FILES):
        random = np.random.default_rng(number)
        rows = random.standard_normal((ROWS // FILES, COLUMNS), dtype=np.float32)
        score = rows[:, :8].sum(1) + rows[:, 8] * rows[:, 9] + random.standard_normal(len(rows))
        columns = {name: rows[:, index] for index, name in enumerate(FEATURES)}
        pq.write_table(pa.table({**columns, "label": (score > 0).astype(np.int8)}), folder / f"{number}.parquet")


class Stamps:
    """Writes the time of every round of a rank into a file, and kills rank 1 once if the benchmark asks for it."""

    def __init__(self, rank: int) -> None:
        self._folder, self._rank = os.environ["BENCH_FOLDER"], rank
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        self._write("round")
        if os.environ.get("BENCH_KILL") and self._rank == 1 and self._count == _KILLED_AT:
            self._die_once()

    def _write(self, what: str) -> None:
        """One write each: the process may be killed at the next instruction."""
        with open(os.path.join(self._folder, f"rank_{self._rank}.txt"), "a", buffering=1) as file:
            file.write(f"{what} {time.time()!r}\n")

    def _die_once(self) -> None:
        try:
            open(os.path.join(self._folder, "died"), "x").close()
        except FileExistsError:
            return
        time.sleep(_REST_S)
        self._write("fault")
        os.kill(os.getpid(), signal.SIGKILL)
