"""Invalid input that is rejected before any worker starts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trireme import Checkpoint, ConfigError, DataParallelTrainer, RunConfig, ScalingConfig


@pytest.fixture
def refused(results: Path) -> Callable[..., str]:
    """The message of the error that fit() raises, after checking that nothing was started."""

    def attempt(function: Any, error: type[Exception], **options: Any) -> str:
        options.setdefault("run_config", RunConfig(name="refused"))
        with pytest.raises(error) as caught:
            DataParallelTrainer(function, **options).fit()
        assert not list(results.glob("*/logs/*")), "a worker was started"
        return str(caught.value)

    return attempt


def nothing() -> None:
    pass


def test_two_required_parameters(refused: Any) -> None:
    def train(config: Any, extra: Any) -> None:
        pass

    message = refused(train, ValueError)
    assert "train(config" in message
    assert "extra" in message
    assert "train_loop_config" in message


def test_required_keyword(refused: Any) -> None:
    def train(*, lr: float) -> None:
        pass

    assert "lr" in refused(train, ValueError)


def test_not_a_function(refused: Any) -> None:
    assert "int" in refused(3, TypeError)


def test_coroutine(refused: Any) -> None:
    async def train() -> None:
        pass

    assert "coroutine" in refused(train, ValueError)


def test_closure_that_cannot_be_pickled_names_the_variable(refused: Any) -> None:
    lock = threading.Lock()

    def train() -> None:
        with lock:
            pass

    message = refused(train, TypeError)
    assert "'lock'" in message
    assert "lock" in message
    assert "inside the training function" in message


def test_config_that_cannot_be_pickled_names_the_key(refused: Any) -> None:
    def train(config: Any) -> None:
        pass

    message = refused(train, TypeError, train_loop_config={"lr": 0.1, "model": {"events": threading.Event()}})
    assert "events" in message


def test_train_loop_config_must_be_a_dict(refused: Any) -> None:
    assert "train_loop_config" in refused(nothing, TypeError, train_loop_config=[1])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"scaling_config": {"num_workers": 2}}, "scaling_config"),
        ({"run_config": 3}, "run_config"),
        ({"resume_from_checkpoint": "/some/path"}, "resume_from_checkpoint"),
        ({"metadata": [1]}, "metadata"),
        ({"backend_config": 3}, "backend_config"),
        ({"validation_config": print}, "validation_config"),
    ],
)
def test_wrong_type_names_the_argument(refused: Any, options: dict[str, Any], word: str) -> None:
    assert word in refused(nothing, TypeError, **options)


def test_metadata_must_be_json(refused: Any) -> None:
    assert "metadata" in refused(nothing, ValueError, metadata={"a": object()})


def test_datasets_that_are_none(refused: Any) -> None:
    assert "datasets['train'] must be a trireme.data.Dataset" in refused(nothing, TypeError, datasets={"train": [1]})


def test_missing_checkpoint_to_resume_from(refused: Any) -> None:
    message = refused(nothing, ConfigError, resume_from_checkpoint=Checkpoint("/no/such/checkpoint"))
    assert "/no/such/checkpoint" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_storage_path_without_permission(refused: Any, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert str(closed) in refused(nothing, ConfigError, run_config=RunConfig(storage_path=closed, name="x"))


def test_storage_path_below_a_file(refused: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    message = refused(nothing, ConfigError, run_config=RunConfig(storage_path=file / "deep", name="x"))
    assert "storage_path" in message
    assert str(file) in message


def test_an_unknown_storage_scheme_is_an_error(refused: Any) -> None:
    pytest.importorskip("pyarrow")
    message = refused(nothing, ConfigError, run_config=RunConfig(storage_path="nothing://bucket/x"))
    assert "RunConfig.storage_path = nothing://bucket/x" in message


def test_filesystem_without_a_path(refused: Any) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    config = RunConfig(storage_filesystem=fs.LocalFileSystem())
    assert "needs storage_path" in refused(nothing, ConfigError, run_config=config)
    config = RunConfig(storage_filesystem=fs.LocalFileSystem(), storage_path="relative")
    assert "is relative" in refused(nothing, ConfigError, run_config=config)
    config = RunConfig(storage_filesystem=3, storage_path="/tmp")
    assert "got int" in refused(nothing, ConfigError, run_config=config)


def test_num_workers_of_the_command_line(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_RUN_NUM_WORKERS", "few")
    assert "TRIREME_RUN_NUM_WORKERS" in refused(nothing, ConfigError)


def test_more_than_the_machine_declares(refused: Any, declared: Any) -> None:
    declared(num_cpus=8)
    scaling = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2})
    message = refused(nothing, ConfigError, scaling_config=scaling)
    assert "9 needed (4 x 2 + 1 for the trainer), 8 available" in message
    for way_out in ("num_workers", "resources_per_worker", "trainer_resources"):
        assert way_out in message


def test_gpu_on_a_machine_without(refused: Any, declared: Any) -> None:
    declared(num_gpus=0)
    assert "GPU" in refused(nothing, ConfigError, scaling_config=ScalingConfig(num_workers=1, use_gpu=True))


def test_an_undeclared_custom_resource_is_an_error(refused: Any) -> None:
    scaling = ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1, "licence": 1})
    assert "licence" in refused(nothing, ConfigError, scaling_config=scaling)
