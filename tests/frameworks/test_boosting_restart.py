"""A worker of XGBoostTrainer or LightGBMTrainer is replaced without reading its rows again, where that is possible."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boosting
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost
from test_boosting_failures import PARAMS, TRAINERS, stored

import trireme
from trireme import CheckpointConfig
from trireme._boosting._kept import Kept
from trireme._boosting._rows import Columns
from trireme._context import TrainContext
from trireme.xgboost._quantiles import Quantiles

THREE = {"objective": "multiclass", "num_class": 3, "metric": "multi_logloss"}


class Kill(boosting.Kill):
    """Calls a function before."""

    def __init__(self, folder: Path, before: Callable[[], None]) -> None:
        super().__init__(folder)
        self.before = before

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 4 and trireme.get_context().get_world_rank() == 1 and not self.marker.exists():
            self.before()
        return super().before_iteration(model, epoch, evals_log)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the driver has its temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def write_rows(folder: Path) -> Path:
    for number in range(4):
        rows = boosting.table(700, seed=number)
        scores = rows.column("x0").to_numpy(), rows.column("x1").to_numpy()
        classes = (np.nan_to_num(scores[0]) > 0).astype(np.int64) + (np.nan_to_num(scores[1]) > 0)
        weights = np.arange(len(rows)) % 3 + 0.5
        rows = rows.append_column("class", pa.array(classes)).append_column("weight", pa.array(weights))
        for name in ("train", "valid"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(rows.slice(0, 200 if name == "valid" else 700), folder / name / f"{number}.parquet")
    return folder


def run(library: str, results: Path, rows: Path, params: dict[str, Any], **options: Any) -> trireme.Result:
    label = "class" if "num_class" in params else "label"
    other = "label" if label == "class" else "class"
    read = {name: trireme.data.read_parquet(str(rows / name)).drop_columns([other]) for name in ("train", "valid")}
    if "weight_column" not in options:
        read = {name: dataset.drop_columns(["weight"]) for name, dataset in read.items()}
    frequency = options.pop("frequency", 2)
    return boosting.trainer(
        TRAINERS[library],
        {**PARAMS[library], **params},
        results,
        label_column=label,
        datasets=read,
        run_config=boosting.run_config(results, checkpoint_config=CheckpointConfig(checkpoint_frequency=frequency)),
        **options,
    ).fit()


@pytest.mark.parametrize(
    ("library", "params", "options"),
    [
        ("xgboost", {}, {}),
        ("xgboost", {"max_bin": 16}, {"weight_column": "weight", "evaluate_train": True}),
        ("lightgbm", {}, {}),
        ("lightgbm", {"max_bin": 15}, {"weight_column": "weight", "evaluate_train": True}),
        ("lightgbm", THREE, {}),
        ("lightgbm", {"is_unbalance": True, "sigmoid": 0.7}, {"early_stopping_rounds": 5}),
        ("lightgbm", {"objective": "regression", "metric": "l2"}, {}),
        ("lightgbm", {"bagging_freq": 1, "bagging_fraction": 0.5, "extra_trees": True}, {}),
        ("lightgbm", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, {}),
    ],
)
def test_the_rows_are_not_read_again(
    library: str, params: dict[str, Any], options: dict[str, Any], results: Path, tmp_path: Path, scratch: Path
) -> None:
    rows = write_rows(tmp_path / "rows")
    whole = run(library, results, rows, params, **options)
    unkept = run(library, results, rows, params, **options, frequency=0)
    killed = run(library, results, rows, params, **options, callbacks=[Kill(tmp_path, lambda: shutil.rmtree(rows))])
    assert (tmp_path / "killed").exists()
    assert not rows.exists()
    assert stored(killed, library) == stored(whole, library) == stored(unkept, library)
    assert killed.metrics == pytest.approx(whole.metrics)
    assert os.listdir(scratch / f"trireme-{os.geteuid()}" / "uploads") == []


def remove(scratch: Path, pattern: str) -> None:
    (found,) = scratch.glob(f"*/uploads/*/{pattern}")
    found.unlink()


def change_extremes(scratch: Path) -> None:
    (file,) = scratch.glob("*/uploads/*/1-of-2-quantiles.npz")
    with np.load(file) as stored:
        changed = {**stored, "low": stored["low"] - 1}
    np.savez(file, **changed)


@pytest.mark.parametrize(
    ("library", "damage"),
    [
        ("xgboost", lambda scratch: remove(scratch, "1-of-2-rows-valid.arrow")),
        ("xgboost", lambda scratch: remove(scratch, "0-of-2-quantiles.npz")),
        ("xgboost", change_extremes),
        ("lightgbm", lambda scratch: remove(scratch, "1-of-2-dataset-train.bin")),
        ("lightgbm", lambda scratch: [path.unlink() for path in scratch.glob("*/uploads/*/0-of-2-scores-*")]),
    ],
)
def test_damaged_files_are_not_used(
    library: str, damage: Callable[[Path], Any], results: Path, tmp_path: Path, scratch: Path
) -> None:
    rows = write_rows(tmp_path / "rows")
    whole = run(library, results, rows, {})
    killed = run(library, results, rows, {}, callbacks=[Kill(tmp_path, lambda: damage(scratch))])
    assert (tmp_path / "killed").exists()
    assert stored(killed, library) == stored(whole, library)


@pytest.mark.parametrize(
    ("library", "params"),
    [
        ("xgboost", {"tree_method": "approx"}),
        ("lightgbm", {"objective": "cross_entropy_lambda", "metric": "cross_entropy_lambda"}),
        ("lightgbm", {"data_sample_strategy": "goss"}),
    ],
)
def test_other_jobs_read_them_again(library: str, params: dict[str, Any], results: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows")
    whole = run(library, results, rows, params)
    killed = run(library, results, rows, params, callbacks=[boosting.Kill(tmp_path)])
    assert (tmp_path / "killed").exists()
    assert stored(killed, library) == stored(whole, library)


def test_a_full_disk_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = TrainContext("run", _world_size=2, _world_rank=1)
    monkeypatch.setattr("trireme._boosting._kept.get_context", lambda: context)
    (tmp_path / "0-of-3-rows.arrow").touch()  # for another number of workers
    kept = Kept(str(tmp_path))
    assert os.listdir(tmp_path) == []

    for name in ("scores-b", "scores-a", "scores-c", "rows"):
        assert kept.write(name, lambda path: Path(path).touch())
        os.utime(tmp_path / f"1-of-2-{name}", ns=(0, 10**9 * len(os.listdir(tmp_path))))
    kept.limit("scores-", 2)
    assert sorted(os.listdir(tmp_path)) == ["1-of-2-rows", "1-of-2-scores-a", "1-of-2-scores-c"]

    def fill(path: str) -> None:
        Path(path).write_text("a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    assert not kept.write("dataset.bin", fill)
    assert "No space left on device" in capsys.readouterr().out
    assert not kept.write("sample.npy", lambda path: Path(path).touch())
    assert len(os.listdir(tmp_path)) == 3


def values(kind: str) -> np.ndarray:
    random = np.random.default_rng(3)
    made = random.standard_normal((5000, 3)).astype(np.float32)
    if kind == "negative":
        made = -np.abs(made) - 1
    elif kind == "tiny":
        made = np.abs(made) * np.float32(1e-6)
    elif kind == "integers":
        made = np.stack([random.integers(0, most, len(made)) for most in (3, 256, 258)], axis=1).astype(np.float32)
    elif kind == "constant":
        made[:] = [0, -5, 7]
    elif kind == "missing":
        made[made > 1] = np.nan
        made[:, 2] = np.nan
    return made


@pytest.mark.parametrize("kind", ["normal", "negative", "tiny", "integers", "constant", "missing"])
@pytest.mark.parametrize("max_bin", [None, 2, 16, 1000])
def test_quantiles_make_a_matrix_with_the_same_quantiles(kind: str, max_bin: int | None) -> None:
    given = values(kind)
    names = ["a", "b", "c"]
    matrix = xgboost.QuantileDMatrix(given, max_bin=max_bin, feature_names=names, feature_types=["float"] * 3)
    low, high = np.fmin.reduce(given), np.fmax.reduce(given)
    quantiles = Quantiles(*matrix.get_quantile_cut(), low, high)
    columns = Columns(tuple(names), "label")
    small = quantiles.matrix(columns, {"max_bin": max_bin, "nthread": 1})
    assert small.num_row() <= (max_bin or 256) + 1
    assert quantiles.are_those_of(small)
