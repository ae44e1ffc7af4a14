from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import Checkpoint, DataParallelTrainer, Result, RunConfig, ScalingConfig, collective


def fit(function: Any, config: dict[str, Any] | None = None, **options: Any) -> Result:
    scaling = ScalingConfig(num_workers=0)
    return DataParallelTrainer(function, train_loop_config=config, scaling_config=scaling, **options).fit()


def test_same_process_and_thread() -> None:
    assert fit(lambda: (os.getpid(), threading.get_ident())).return_value == (os.getpid(), threading.get_ident())


def test_exceptions_pass_straight_through() -> None:
    def train() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fit(train)
    with pytest.raises(RuntimeError, match="cannot be used outside"):
        trireme.get_context()


def test_unpicklable_closures_are_fine() -> None:
    lock = threading.Lock()

    def train() -> bool:
        with lock:
            return True

    assert fit(train).return_value is True


def test_context_and_collectives() -> None:
    def train() -> Any:
        context = trireme.get_context()
        collective.barrier()
        assert collective.broadcast_from_rank_zero("same") == "same"
        assert context.get_trial_dir() is None
        with pytest.raises(NotImplementedError):
            context.get_storage()
        return context.get_world_size(), context.get_world_rank(), context.get_experiment_name(), context.get_metadata()

    result = fit(train, run_config=RunConfig(name="here"), metadata={"a": 1})
    assert result.return_value == (1, 0, "here", {"a": 1})


def test_report_keeps_the_last_metrics_and_the_last_checkpoint_and_writes_nothing(
    tmp_path: Path, results: Path
) -> None:
    def train() -> None:
        trireme.report({"step": 0}, checkpoint=Checkpoint(tmp_path))
        trireme.report({"step": 1})
        checkpoint = trireme.get_checkpoint()
        assert checkpoint is not None
        assert checkpoint.path == str(tmp_path)

    result = fit(train)
    assert result.metrics == {"step": 1}
    assert result.checkpoint is not None
    assert result.checkpoint.path == str(tmp_path)
    assert result.path is None
    assert result.best_checkpoints is None
    assert result.metrics_dataframe is None
    assert not results.exists()


def test_bad_metrics_name_the_key_here_too() -> None:
    with pytest.raises(ValueError, match="bad"):
        fit(lambda: trireme.report({"bad": object()}))


def test_resume_from_checkpoint(tmp_path: Path) -> None:
    def train() -> Any:
        checkpoint = trireme.get_checkpoint()
        return checkpoint and checkpoint.path

    assert fit(train, resume_from_checkpoint=Checkpoint(tmp_path)).return_value == str(tmp_path)


def test_config_is_passed() -> None:
    assert fit(lambda config: config["lr"], {"lr": 0.5}).return_value == 0.5
