"""Trainer.restore() and can_restore()."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import trireme
from s3_server import Bucket
from trireme import (
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    RunConfig,
    ScalingConfig,
    UserCallback,
    ValidationConfig,
)


def train(config: dict[str, Any]) -> Any:
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(first, config["last"]):
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
    if config.get("fail"):
        trireme.get_all_reported_checkpoints()
        raise ValueError("as asked")
    return first, trireme.get_context().get_world_size(), trireme.get_context().get_metadata()


class Custom(DataParallelTrainer):
    pass


def begin(run_config: RunConfig, **options: Any) -> None:
    trainer = Custom(
        train,
        train_loop_config={"last": 2, "fail": True},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=run_config,
        metadata={"team": "blue"},
        **options,
    )
    with pytest.raises(trireme.WorkerGroupError):
        trainer.fit()


def test_continues_with_what_was_stored_and_what_is_given(results: Path) -> None:
    path = results / "run"
    assert not Custom.can_restore(path)
    begin(RunConfig(name="run", storage_path=results))
    assert Custom.can_restore(path)
    restored = Custom.restore(path, train_loop_config={"last": 4})
    assert type(restored) is Custom
    assert restored.run_config.resume == "must"
    result = restored.fit()
    assert result.return_value == (2, 2, {"team": "blue"})
    assert result.path == str(path)
    scaled = DataParallelTrainer.restore(
        f"file://{path}/",
        train_loop_per_worker=lambda config: (config["last"], trireme.get_context().get_world_size()),
        scaling_config=ScalingConfig(num_workers=1),
    )
    assert type(scaled) is Custom
    assert scaled.fit().return_value == (4, 1)


def test_a_folder_that_has_moved(results: Path) -> None:
    begin(RunConfig(name="run", storage_path=results))
    os.rename(results / "run", results / "elsewhere")
    result = Custom.restore(results / "elsewhere", train_loop_config={"last": 3}).fit()
    assert result.return_value[0] == 2
    assert result.path == str(results / "elsewhere")


def test_only_its_user_may_read_it(results: Path) -> None:
    begin(RunConfig(name="run", storage_path=results))
    assert stat.S_IMODE((results / "run/trainer.pkl").stat().st_mode) == 0o600


def test_nothing_to_restore(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no trainer\.pkl.*fit\(\) then continues the run"):
        Custom.restore(tmp_path)
    begin(RunConfig(name="run", storage_path=results))
    (results / "run/trainer.pkl").write_bytes(b"no pickle")
    with pytest.raises(RuntimeError, match=r"cannot be read.*name='run'"):
        Custom.restore(results / "run")


def test_another_kind_of_trainer(results: Path) -> None:
    class Other(DataParallelTrainer):
        pass

    begin(RunConfig(name="run", storage_path=results))
    with pytest.raises(TypeError, match=r"call Custom\.restore\(\)"):
        Other.restore(results / "run")


def test_a_run_folder_that_is_gone_is_not_begun_again(results: Path, tmp_path: Path) -> None:
    begin(RunConfig(name="run", storage_path=results))
    (tmp_path / "only").mkdir()
    os.rename(results / "run/trainer.pkl", tmp_path / "only/trainer.pkl")
    with pytest.raises(ConfigError, match="must"):
        Custom.restore(tmp_path / "only").fit()


class Holds(UserCallback):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_callbacks_that_cannot_be_stored(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin(RunConfig(name="run", storage_path=results, callbacks=[Holds()]))
    assert Custom.restore(results / "run").run_config.callbacks == []
    assert "callbacks could not be stored" in capsys.readouterr().out
    given = [Holds()]
    assert Custom.restore(results / "run", run_config=RunConfig(callbacks=given)).run_config.callbacks == given
    assert capsys.readouterr().out == ""


def tell_variables() -> Any:
    """Backwards: what a function returns is stored."""
    return [os.environ.get(name, "")[::-1] for name in ("TRIREME_TEST_KEY", "TRIREME_TEST_MODE")]


def with_variables(results: Path) -> DataParallelTrainer:
    return Custom(
        tell_variables,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="run",
            storage_path=results,
            worker_runtime_env={"env_vars": {"TRIREME_TEST_KEY": "hunter2", "TRIREME_TEST_MODE": "fast-mode"}},
        ),
        validation_config=ValidationConfig(
            lambda checkpoint: {}, ray_remote_kwargs={"runtime_env": {"env_vars": {"TRIREME_TEST_TOKEN": "sesame"}}}
        ),
    )


def test_values_of_variables_are_not_stored(results: Path) -> None:
    assert with_variables(results).fit().return_value == ["2retnuh", "edom-tsaf"]
    for file in (results / "run").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(secret in content for secret in (b"hunter2", b"fast-mode", b"sesame")), file


def test_values_of_variables_come_from_the_environment(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_variables(results).fit()
    with pytest.raises(ValueError, match=r"values are not stored: set TRIREME_TEST_KEY, TRIREME_TEST_MODE in the env"):
        Custom.restore(results / "run")
    monkeypatch.setenv("TRIREME_TEST_KEY", "another")
    with pytest.raises(ValueError, match=r"set TRIREME_TEST_MODE in the environment, or pass restore\(\) run_config="):
        Custom.restore(results / "run")
    monkeypatch.setenv("TRIREME_TEST_MODE", "slow")
    with pytest.raises(ValueError, match="TRIREME_TEST_TOKEN"):
        Custom.restore(results / "run")
    monkeypatch.setenv("TRIREME_TEST_TOKEN", "friend")
    restored = Custom.restore(results / "run")
    variables = {"TRIREME_TEST_KEY": "another", "TRIREME_TEST_MODE": "slow"}
    assert restored.run_config.worker_runtime_env == {"env_vars": variables}
    assert restored.validation_config is not None
    assert restored.validation_config.env_vars == {"TRIREME_TEST_TOKEN": "friend"}
    assert restored.fit().return_value == ["rehtona", "wols"]
    # An explicit value needs no environment variable.
    monkeypatch.delenv("TRIREME_TEST_KEY")
    given = Custom.restore(results / "run", run_config=RunConfig(worker_runtime_env={"env_vars": {"A": "b"}}))
    assert given.run_config.worker_runtime_env == {"env_vars": {"A": "b"}}


def test_a_link_in_place_of_the_temporary_file_is_not_followed(results: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (results / "run").mkdir(parents=True)
    (results / f"run/trainer.pkl.{os.getpid()}").symlink_to(victim)
    begin(RunConfig(name="run", storage_path=results))
    assert victim.read_text() == "mine"
    assert not (results / "run/trainer.pkl").is_symlink()


def test_keys_of_a_checkpoint_elsewhere_are_not_stored(
    bucket: Bucket, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filesystem = bucket.connect()
    upload = f"{bucket.name}/first"
    with filesystem.open_output_stream(f"{upload}/weights") as stream:
        stream.write(b"w")
    begin(RunConfig(name="run", storage_path=results), resume_from_checkpoint=Checkpoint(upload, filesystem))
    assert b"testing" not in (results / "run/trainer.pkl").read_bytes()
    assert Custom.restore(results / "run").resume_from_checkpoint is None
    assert "resume_from_checkpoint of this run" in capsys.readouterr().out


def test_remote(bucket: Bucket) -> None:
    filesystem = bucket.connect()
    begin(RunConfig(name="run", storage_path=f"{bucket.name}/results", storage_filesystem=filesystem))
    inside = f"{bucket.name}/results/run"
    assert Custom.can_restore(inside, filesystem)
    assert not Custom.can_restore(f"{bucket.name}/results/other", filesystem)
    with filesystem.open_input_stream(f"{inside}/trainer.pkl") as stream:
        assert b"testing" not in stream.read(), "keys of the filesystem are not stored"
    for restored in (
        Custom.restore(inside, train_loop_config={"last": 3}, storage_filesystem=filesystem),
        Custom.restore(bucket.uri("results/run"), train_loop_config={"last": 4}),
    ):
        assert restored.fit().return_value[0] == restored.train_loop_config["last"] - 1


@pytest.mark.torch
def test_torch_trainer(results: Path) -> None:
    from trireme.torch import TorchConfig, TorchTrainer

    def use_torch() -> Any:
        import torch

        return torch.distributed.get_backend(), torch.distributed.get_world_size()

    trainer = TorchTrainer(
        use_torch,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="run", storage_path=results),
    )
    trainer.fit()
    restored = TorchTrainer.restore(results / "run")
    assert type(restored) is TorchTrainer
    assert restored.fit().return_value == ("gloo", 2)


def test_trackers_are_restored(results: Path) -> None:
    pytest.importorskip("tensorboardX")
    from trireme.integrations.tensorboard import TensorBoardCallback

    begin(RunConfig(name="run", storage_path=results, callbacks=[TensorBoardCallback()]))
    restored = Custom.restore(results / "run", train_loop_config={"last": 3})
    assert [type(callback) for callback in restored.run_config.callbacks] == [TensorBoardCallback]
    restored.fit()
    assert len(list((results / "run/tensorboard").iterdir())) == 2
