"""Result, from fit() and from a run folder."""

from __future__ import annotations

import csv
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from trireme import Checkpoint, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig


def fit(function: Any, workers: int = 1, **run: Any) -> Result:
    scaling, config = ScalingConfig(num_workers=workers), RunConfig(name="run", **run)
    return DataParallelTrainer(function, scaling_config=scaling, run_config=config).fit()


def several_ranks() -> None:
    rank = trireme.get_context().get_world_rank()
    for step in range(3):
        trireme.report({"loss": 1.0 / (step + 1), "rank": rank, "eval": {"accuracy": step}, "text": f"step {step}"})


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def test_a_folder_tells_what_fit_did(results: Path) -> None:
    def train() -> Any:
        for step in range(3):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        return {"plain": [1, 2.5, "text", None, True, b"raw"]}

    result = fit(train)
    before = everything_in(results)
    for spelling in (results / "run", f"{results}/run/", f"file://{results}/run"):
        found = Result.from_path(spelling)
        assert found.metrics == result.metrics == {"step": 2}
        assert found.checkpoint == result.checkpoint
        assert found.best_checkpoints == result.best_checkpoints
        assert found.return_value == result.return_value == {"plain": [1, 2.5, "text", None, True, b"raw"]}
        assert found.path == result.path == str(results / "run")
        assert (found.error, found.state) == (None, "finished")
        assert found.metrics_history() == result.metrics_history()
    assert everything_in(results) == before, "from_path writes nothing"


def test_pickled_return_values_are_read_on_request_only(results: Path) -> None:
    fitted = fit(lambda: ({1, 2}, (3,)))
    assert fitted.return_value == ({1, 2}, (3,))
    with pytest.warns(UserWarning, match="allow_pickle=True"):
        assert Result.from_path(results / "run").return_value is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Result.from_path(results / "run", allow_pickle=True).return_value == ({1, 2}, (3,))


def test_a_run_that_failed(results: Path) -> None:
    def train() -> None:
        trireme.report({"a": 1}, checkpoint=Checkpoint.from_dict({"a": 1}))
        trireme.get_all_reported_checkpoints()
        raise ValueError("no such batch")

    with pytest.raises(trireme.WorkerGroupError):
        fit(train)
    result = Result.from_path(results / "run")
    assert isinstance(result.error, trireme.TrainingFailedError)
    assert "ValueError: no such batch" in str(result.error)
    assert result.state == "failed"
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict() == {"a": 1}
    assert result.return_value is None


def test_a_run_under_way_and_one_whose_driver_died(script: Any, results: Path) -> None:
    process = script.start(
        """
        import time, trireme
        from trireme import *

        def train():
            trireme.report({"a": 1}, checkpoint=Checkpoint.from_dict({"a": 1}))
            trireme.report({"a": 2})
            time.sleep(600)

        if __name__ == "__main__":
            DataParallelTrainer(train, run_config=RunConfig(name="run")).fit()
        """
    )

    def reported() -> bool:
        if not (results / "run/events.jsonl").exists():
            return False
        seen = Result.from_path(results / "run")
        return seen.metrics == {"a": 2} and seen.checkpoint is not None

    assert processes.wait_until(reported)
    result = Result.from_path(results / "run")
    assert (result.state, result.error) == ("running", None)
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict() == {"a": 1}
    process.kill()
    process.wait()
    assert processes.wait_until(lambda: Result.from_path(results / "run").state == "lost")
    assert "driver" in str(Result.from_path(results / "run").error)


def test_not_a_run_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RuntimeError, match="is not a run folder"):
            Result.from_path(path)


def test_history_of_all_ranks() -> None:
    result = fit(several_ranks, 2)
    history = result.metrics_history()
    assert sorted((row["rank"], row["index"]) for row in history) == [(r, i) for r in range(2) for i in range(3)]
    assert history[0].keys() == {"rank", "index", "attempt", "time", "metrics"}
    assert [row["metrics"]["loss"] for row in result.metrics_history(1)] == [1.0, 0.5, 1 / 3]
    assert result.metrics_history([0, 1]) == history
    assert {row["rank"] for row in result.metrics_history([0])} == {0}
    for bad in ("some", 1.5, None):
        with pytest.raises(ValueError, match="ranks"):
            result.metrics_history(bad)  # type: ignore[arg-type]


def test_a_restart_repeats_nothing() -> None:
    def train() -> None:
        checkpoint = trireme.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 6):
            saved = Checkpoint.from_dict({"step": step}) if step == 2 else None
            trireme.report({"step": step}, checkpoint=saved)
            if step == 4 and checkpoint is None:
                trireme.get_all_reported_checkpoints()  # they are committed
                raise ValueError("once")

    result = fit(train, 2, failure_config=FailureConfig(max_failures=1))
    for rank in range(2):
        assert [row["metrics"]["step"] for row in result.metrics_history(rank)] == list(range(6))
    frame = result.metrics_dataframe
    assert frame is not None
    assert list(frame["step"]) == list(range(6))


def test_tables(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    result = fit(several_ranks, 2)
    frame = result.to_pandas()
    assert list(frame.columns) == [
        "rank", "step", "time", "attempt", "loss", "metrics/rank", "eval/accuracy", "text",
    ]  # fmt: skip
    assert len(frame) == 6
    assert list(result.to_pandas(ranks=1)["eval/accuracy"]) == [0, 1, 2]
    table = result.to_arrow()
    assert table.column_names == list(frame.columns)
    assert table.column("loss").to_pylist() == list(frame["loss"])
    result.to_csv(tmp_path / "metrics.csv")
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == list(frame["loss"])
    assert rows[0]["text"] == "step 0"


def test_metrics_of_mixed_kinds_in_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    def train() -> None:
        trireme.report({"odd": 1, "list": [1, 2]})
        trireme.report({"odd": "text", "late": 1.5})
        trireme.report({"odd": float("nan")})

    result = fit(train)
    table = result.to_arrow()
    assert table.column("odd").to_pylist() == ["1", "text", "nan"]
    assert table.column("late").to_pylist() == [None, 1.5, None]
    assert table.column("list").to_pylist() == [[1, 2], None, None]
    result.to_csv(tmp_path / "metrics.csv")
    assert '"[1, 2]"' in (tmp_path / "metrics.csv").read_text()


def test_local_mode_has_no_history() -> None:
    result = fit(lambda: trireme.report({"a": 1}), 0)
    assert result.metrics_history() == []


def test_at_any_moment_only_whole_checkpoints_are_seen(results: Path) -> None:
    """Reads in this process while another one reports, deletes and replaces at full speed."""
    import threading

    seen: list[int] = []
    problems: list[str] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if not (results / "run/events.jsonl").exists():
                continue
            found = Result.from_path(results / "run")
            for checkpoint, metrics in found.best_checkpoints or []:
                try:
                    state = checkpoint.to_dict()
                except Exception:
                    assert not Path(checkpoint.path, ".trireme_manifest.json").exists()
                    continue  # deleted by retention in the meantime
                if state["step"] != metrics["step"] or len(state["data"]) != 50_000:
                    problems.append(f"{metrics}: {state['step']}, {len(state['data'])}")
                seen.append(metrics["step"])

    def train() -> None:
        for step in range(200):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "data": os.urandom(50_000)}))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        fit(train, checkpoint_config={"num_to_keep": 2})
    finally:
        over.set()
        reader.join()
    assert not problems
    assert len(set(seen)) > 3


def test_a_checkpoint_deleted_during_its_upload_is_reported() -> None:
    def train() -> None:
        import shutil

        folder = tempfile.mkdtemp()
        for index in range(2000):
            Path(folder, f"{index}").write_bytes(b"x" * 1000)
        checkpoint = Checkpoint(folder)
        trireme.report({}, checkpoint=checkpoint, checkpoint_upload_mode=trireme.CheckpointUploadMode.ASYNC)
        shutil.rmtree(folder)
        trireme.get_all_reported_checkpoints()

    try:
        result = fit(train)
    except trireme.TrainingFailedError as error:
        assert "trireme" in str(error) or "tmp" in str(error)
    else:
        assert result.checkpoint is not None
        assert len(os.listdir(result.checkpoint.path)) >= 2000
