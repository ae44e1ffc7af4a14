"""Data, and the libraries' own distributed training, for the tests of XGBoost and LightGBM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig

TWO = ScalingConfig(num_workers=2)
FEATURES = [f"x{index}" for index in range(6)]


def table(rows: int = 3000, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, len(FEATURES)))
    values[values > 2] = np.nan
    label = (np.nansum(values, 1) + random.standard_normal(rows) > 0).astype(np.int64)
    columns: dict[str, Any] = {name: values[:, index] for index, name in enumerate(FEATURES)}
    return pa.table({**columns, "label": label})


def datasets(rows: int = 3000) -> dict[str, Any]:
    data = trireme.data
    return {"train": data.from_arrow(table(rows)).repartition(4), "valid": data.from_arrow(table(800, seed=1))}


def run_config(results: Path, **options: Any) -> RunConfig:
    return RunConfig(storage_path=str(results), failure_config=FailureConfig(max_failures=1), **options)


def save_partition(config: dict[str, Any]) -> None:
    """A training function: stores this rank's rows."""
    shard = trireme.get_dataset_shard("train")
    batches = [batch.to_pandas() for batch in shard.iter_batches(batch_size=65_536, batch_format="pyarrow")]
    rank = trireme.get_context().get_world_rank()
    np.save(f"{config['folder']}/{rank}.npy", np.concatenate([batch.to_numpy(np.float64) for batch in batches]))


def run_own(script: str, folder: Path) -> list[bytes]:
    """Two processes of a script that does not know Trireme; the models that they write."""
    file = folder / "own.py"
    file.write_text(script)
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, str(file), str(rank), str(folder)], env=single) for rank in range(2)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    return [(folder / f"model{rank}").read_bytes() for rank in range(2)]
