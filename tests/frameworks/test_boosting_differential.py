"""Random jobs of XGBoostTrainer and LightGBMTrainer give the models of the libraries' own training on the same rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boosting
import lightgbm
import numpy as np
import pyarrow as pa
import pytest
from xgboost.tracker import RabitTracker

import trireme
from trireme import CheckpointConfig, RunConfig
from trireme._core import ReservedPort
from trireme.lightgbm import LightGBMTrainer
from trireme.xgboost import XGBoostTrainer

CASES = int(os.environ.get("TRIREME_BOOSTING_CASES", "15"))  # of a library
SEED = int(os.environ.get("TRIREME_BOOSTING_SEED", "1"))
TABLES = 5
TRAINERS = {"xgboost": XGBoostTrainer, "lightgbm": LightGBMTrainer}
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}


def table(draw: random.Random) -> pa.Table:
    """Few or many rows; columns with missing values, few values, one value, or none."""
    rows = draw.choice([20, 60, 300, 1500, 4000])
    numbers = np.random.default_rng(draw.getrandbits(32))
    columns: dict[str, np.ndarray] = {}
    for index in range(draw.randint(1, 9)):
        values = numbers.standard_normal(rows) * 10 ** draw.randint(-3, 6)
        kind = draw.choice(["plain", "missing", "rounded", "zeros", "constant", "none"])
        if kind == "missing":
            values[numbers.random(rows) < draw.random()] = np.nan
        elif kind == "rounded":
            values = np.round(numbers.standard_normal(rows) * 3)
        elif kind == "zeros":
            values[numbers.random(rows) < 0.8] = 0
        elif kind in ("constant", "none"):
            values[:] = 7 if kind == "constant" else np.nan
        columns[f"x{index}"] = values
    score = sum(np.argsort(np.argsort(np.nan_to_num(values))) / rows for values in columns.values())
    label = score + numbers.standard_normal(rows) / 2 > np.median(score)
    return pa.table({**columns, "label": label.astype(np.float64)})


def params_of(draw: random.Random, library: str) -> dict[str, Any]:
    common: dict[str, list[Any]] = {"max_depth": [1, 2, 4, 8], "learning_rate": [0.05, 0.3, 1.0]}
    if library == "xgboost":
        fixed = {"objective": draw.choice(["binary:logistic", "reg:squarederror", "count:poisson", "binary:hinge"])}
        common |= {
            "max_bin": [2, 16, 255, 256, 1000],
            "min_child_weight": [0, 1, 20],
            "gamma": [0, 0.5],
            "reg_alpha": [0, 1.0],
            "reg_lambda": [0, 5.0],
            "grow_policy": ["lossguide"],
            "max_leaves": [3, 20],
            "scale_pos_weight": [0.3, 3.0],
            "num_parallel_tree": [2],
            "max_delta_step": [0.7],
            "base_score": [0.2, 0.5],
            "tree_method": ["hist"],
        }
    else:
        fixed = {"objective": draw.choice(["binary", "regression", "regression_l1", "poisson", "cross_entropy"])}
        common |= {
            "num_leaves": [2, 7, 63],
            "max_bin": [2, 15, 255, 400],
            "min_data_in_leaf": [1, 5, 20, 200],
            "min_data_in_bin": [1, 3, 30],
            "min_sum_hessian_in_leaf": [0.0, 0.001, 10.0],
            "min_gain_to_split": [0.1],
            "lambda_l1": [1.0],
            "lambda_l2": [5.0],
            "boost_from_average": [False],
            "path_smooth": [2.0],
            "zero_as_missing": [True],
            "use_missing": [False],
            "feature_pre_filter": [False],
            "enable_bundle": [False],
            "scale_pos_weight": [0.3],
        }
        if fixed["objective"] != "binary":
            del common["scale_pos_weight"]
    return {**fixed, **{name: draw.choice(values) for name, values in common.items() if draw.random() < 0.35}}


class Own:
    """Two processes of the libraries' own training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, str(Path(__file__).with_name("own_boosting.py"))]
        self.ranks = [
            subprocess.Popen(
                [*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]  # fmt: skip

    def train(self, library: str, params: dict[str, Any], rounds: int, rows: Path) -> bytes | None:
        """The model; None if the library refuses to train it."""
        tracker = None
        if library == "xgboost":
            tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2, sortby="task")
            tracker.start()
            connection = tracker.worker_args()
        else:
            reserved = [ReservedPort() for _ in range(2)]
            ports = [port.port for port in reserved]
            connection = {"ports": ports, "machines": ",".join(f"127.0.0.1:{port}" for port in ports)}
        models = [self.folder / f"{rank}.ubj" for rank in range(2)]
        for rank, process in enumerate(self.ranks):
            job = {
                "library": library, "params": params, "rounds": rounds, "connection": connection,
                "rows": str(rows / f"{rank}.npy"), "model": str(models[rank]),
            }  # fmt: skip
            print(json.dumps(job), file=process.stdin, flush=True)
        answers = []
        for process in self.ranks:
            assert process.stdout is not None
            while (line := process.stdout.readline()) not in ("done\n", "failed\n"):
                assert line, f"the library's own training has died: {params}"
            answers.append(line)
        if tracker is not None:
            tracker.wait_for()
        if answers == ["failed\n", "failed\n"]:
            return None
        made = [model.read_bytes() for model in models]
        assert made[0] == made[1]  # not with tree_learner="voting", whose models also differ between two runs
        return made[0]

    def end(self) -> None:
        for process in self.ranks:
            process.kill()
            process.communicate()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    made = Own(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_random_jobs_equal_the_librarys_own(library: str, own: Own, results: Path, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    tables = []
    for index in range(max(TABLES, CASES // 8)):
        folder = tmp_path / f"rows{index}"
        folder.mkdir()
        data = {"train": trireme.data.from_arrow(table(draw)).repartition(4)}
        job = {"train_loop_config": {"folder": str(folder)}, "datasets": data, "scaling_config": boosting.TWO}
        XGBoostTrainer(boosting.save_partition, **job).fit()
        tables.append((data, folder))
    different = []
    for case in range(CASES):
        data, folder = tables[case % len(tables)]
        params, rounds = params_of(draw, library), draw.randint(1, 8)
        expected = own.train(library, params, rounds, folder)
        trainer = TRAINERS[library](
            params=params,
            label_column="label",
            num_boost_round=rounds,
            datasets=data,
            scaling_config=boosting.TWO,
            run_config=RunConfig(storage_path=str(results), checkpoint_config=CheckpointConfig(num_to_keep=1)),
        )
        if expected is None:
            with pytest.raises(trireme.TrainingFailedError, match=r"LightGBMError|XGBoostError"):
                trainer.fit()
            continue
        result = trainer.fit()
        with result.checkpoint.as_directory() as made:
            model = Path(made, FILES[library]).read_bytes()
        if library == "lightgbm":
            # lightgbm.train() writes its model as text and reads it. A tree without a split has other zeros then.
            read = lightgbm.Booster(model_str=model.decode())
            model = read.model_to_string(num_iteration=-1).partition("parameters:")[0].encode()
        if model != expected:
            lines = zip(model.splitlines(), expected.splitlines(), strict=False)
            different.append((case, rounds, params, [pair for pair in lines if pair[0] != pair[1]][:2]))
    assert not different, different  # TRIREME_BOOSTING_SEED and _CASES choose the jobs
