"""Data, and the libraries' own distributed training, for the tests of XGBoost and LightGBM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost

import trireme
from trireme import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback

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


def trainer(kind: Callable[..., Any], default_params: dict[str, Any], results: Path, **options: Any) -> Any:
    given = {
        "params": default_params,
        "label_column": "label",
        "num_boost_round": 6,
        "datasets": datasets(),
        "scaling_config": TWO,
        "run_config": run_config(results),
    }
    return kind(**{**given, **options})


class Kill(xgboost.callback.TrainingCallback):
    """For both libraries: kills rank 1 in the middle of the first attempt."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.marker = folder / "killed"

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 4 and trireme.get_context().get_world_rank() == 1 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def __call__(self, env: Any) -> None:  # of LightGBM, before every round
        self.before_iteration(env.model, env.iteration, None)


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


class Resized:
    """Called before every round, it notes the sizes of the gang, and ends the training when it has had all of these."""

    WANTED = (1, 2, 1)

    def __init__(self, folder: Path) -> None:
        self.file = folder / "sizes.json"

    def sizes(self) -> list[int]:
        return json.loads(self.file.read_text()) if self.file.exists() else []

    def is_done(self, round: int) -> bool:
        context = trireme.get_context()
        sizes = self.sizes()
        if sizes[-1:] != [context.get_world_size()] and context.get_world_rank() == 0:
            self.file.write_text(json.dumps([*sizes, context.get_world_size()]))
        time.sleep(0.02)  # leaves the driver time to resize before the last round
        return len(sizes) == len(self.WANTED) and context.get_world_size() == 1 and round % 4 == 3


def resized_run(trainer: Callable[..., Any], results: Path, tmp_path: Path, callback: Callable[[Resized], Any]) -> Any:
    """The result of a run that was resized to the sizes of Resized; the callback ends the training."""
    resized = Resized(tmp_path)
    result = trainer(
        results,
        num_boost_round=100_000,
        scaling_config=ScalingConfig(num_workers=(1, 2), trainer_resources={"CPU": 0}),
        run_config=run_config(
            results,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
            callbacks=[Resize()],
        ),
        callbacks=[callback(resized)],
    ).fit()
    assert resized.sizes() == list(Resized.WANTED)
    return result


class Resize(UserCallback):
    """Changes the capacity as soon as the gang has reported twice with a size."""

    def __init__(self) -> None:
        self.capacities = [2, 1]
        self.seen: list[int] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.seen.append(len(metrics))
        if self.capacities and self.seen[-2:] == [3 - self.capacities[0]] * 2:
            trireme.set_capacity(num_cpus=self.capacities.pop(0))


class Growth:
    """The largest growth of a worker's memory since it received this object, before the first rows were read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "before" in state:  # a copy in the worker
            return
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
        self.before = memory("VmRSS")

    def save(self) -> None:
        self.file.write_text(str(memory("VmHWM") - self.before))


def memory(kind: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def growth_of_rows(folder: Path, train: Any, columns: int = 28) -> float:
    """By how much a worker's peak memory grows for every byte of rows: with constant costs excluded. The sizes are far
    apart, because threads that read ahead and allocators that free later change a peak by 20 MB."""
    growths, sizes = [], []
    for rows in (250_000, 1_000_000):  # LightGBM takes a sample of 200,000 for its bins
        random = np.random.default_rng(7)
        values = {f"x{index}": random.standard_normal(rows) for index in range(columns)}
        whole = pa.table({**values, "label": (values["x0"] > 0).astype(np.int8)})
        pq.write_table(whole, folder / f"{rows}.parquet", row_group_size=50_000)
        train(trireme.data.read_parquet(str(folder / f"{rows}.parquet")))
        growths.append(int((folder / "growth").read_text()))
        sizes.append(whole.nbytes)
    return (growths[1] - growths[0]) / (sizes[1] - sizes[0])


class Seen(xgboost.callback.TrainingCallback):
    """For both libraries: uses an estimator in every round."""

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        import lightgbm

        assert xgboost.XGBClassifier().get_params() and lightgbm.LGBMClassifier().get_params()
        return False

    def __call__(self, env: Any) -> None:  # of LightGBM
        self.after_iteration(env.model, env.iteration, None)
