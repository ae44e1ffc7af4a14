"""Complete runs whose storage is an S3 server that may become unavailable and return."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from s3_server import Bucket
from trireme import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    ConfigError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
)

pytest.importorskip("pyarrow")


def count_to(last: int) -> Any:
    def train() -> list[int]:
        checkpoint = trireme.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, last):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        return list(range(first, last))

    return train


def fit(function: Any, bucket: Bucket, workers: int = 1, by_uri: bool = True, **options: Any) -> Result:
    run = options.pop("run", {})
    if by_uri:
        config = RunConfig(name="run", storage_path=bucket.uri("results"), **run)
    else:
        path = f"{bucket.name}/results"
        config = RunConfig(name="run", storage_path=path, storage_filesystem=bucket.connect(), **run)
    scaling = ScalingConfig(num_workers=workers)
    return DataParallelTrainer(function, scaling_config=scaling, run_config=config, **options).fit()


@pytest.mark.parametrize("by_uri", [True, False])
def test_a_run_and_its_continuation(bucket: Bucket, by_uri: bool) -> None:
    assert fit(count_to(2), bucket, 2, by_uri).return_value == [0, 1]
    result = fit(count_to(4), bucket, 2, by_uri)
    assert result.return_value == [2, 3]
    assert result.path == f"{bucket.name}/results/run"
    assert result.filesystem.type_name == "s3"
    assert result.checkpoint is not None
    assert result.checkpoint.filesystem.type_name == "s3"
    assert result.checkpoint.to_dict() == {"step": 3}
    assert [metrics["step"] for _, metrics in result.best_checkpoints or []] == [0, 1, 2, 3]
    assert [row["metrics"]["step"] for row in result.metrics_history(1)] == [0, 1, 2, 3]
    assert "results/run/checkpoint_000003/.trireme_manifest.json" in bucket.objects()
    assert {"results/run/run.json", "results/run/events.jsonl"} <= set(bucket.objects())
    for found in (
        Result.from_path(bucket.uri("results/run")),
        Result.from_path(f"{bucket.name}/results/run/", bucket.connect()),
    ):
        assert found.metrics == {"step": 3}
        assert found.state == "finished"
        assert found.return_value == [2, 3]
        assert [c.to_dict()["step"] for c, _ in found.best_checkpoints or []] == [0, 1, 2, 3]
        assert [row["metrics"]["step"] for row in found.metrics_history(0)] == [0, 1, 2, 3]


def test_continues_on_another_machine(bucket: Bucket, tmp_path: Path, script: Any) -> None:
    """A driver whose state folder does not know the run."""
    fit(count_to(2), bucket)
    done = script.run(
        """
        import sys, trireme
        from trireme import *

        def train():
            return trireme.get_checkpoint().to_dict()

        if __name__ == "__main__":
            result = DataParallelTrainer(train, run_config=RunConfig(name="run", storage_path=sys.argv[1])).fit()
            print(result.return_value, [row["metrics"]["step"] for row in result.metrics_history(0)])
        """,
        bucket.uri("results"),
        env={**os.environ, "TRIREME_STATE_DIR": str(tmp_path / "other")},
    )
    assert "{'step': 1} [0, 1]" in done.stdout, done.stdout + done.stderr


def test_folders_from_several_ranks(bucket: Bucket) -> None:
    def train() -> None:
        import tempfile

        rank = trireme.get_context().get_world_rank()
        folder = Path(tempfile.mkdtemp())
        (folder / "deep").mkdir()
        (folder / f"deep/shard_{rank}").write_bytes(bytes([rank]) * 100_000)
        trireme.report({}, checkpoint=Checkpoint(folder))
        stored = trireme.get_checkpoint()
        assert stored is not None
        assert stored.filesystem.type_name == "s3"

    result = fit(train, bucket, 3)
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert [Path(folder, f"deep/shard_{rank}").read_bytes() for rank in range(3)] == [
            bytes([rank]) * 100_000 for rank in range(3)
        ]


def test_retention(bucket: Bucket) -> None:
    result = fit(count_to(5), bucket, run={"checkpoint_config": CheckpointConfig(num_to_keep=2)})
    assert [metrics["step"] for _, metrics in result.best_checkpoints or []] == [3, 4]
    folders = {key.split("/")[2] for key in bucket.objects() if key.startswith("results/run/checkpoint_")}
    assert folders == {"checkpoint_000003", "checkpoint_000004"}


def test_a_restart_loads_from_the_storage(bucket: Bucket) -> None:
    def train() -> list[int]:
        checkpoint = trireme.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 4):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 1 and first == 0:
                trireme.get_all_reported_checkpoints()  # they are committed
                os.kill(os.getpid(), 9)
        return list(range(first, 4))

    result = fit(train, bucket, run={"failure_config": FailureConfig(max_failures=1)})
    assert result.return_value == [2, 3]


def test_validation(bucket: Bucket) -> None:
    def train() -> None:
        trireme.report({"a": 1}, checkpoint=Checkpoint.from_dict({"value": 7}), validation=True)

    def validate(checkpoint: Checkpoint) -> dict[str, Any]:
        return checkpoint.to_dict()

    result = fit(train, bucket, validation_config=ValidationConfig(validate))
    assert [metrics for _, metrics in result.best_checkpoints or []] == [{"a": 1, "value": 7}]


def test_no_upload_and_upload_function(bucket: Bucket) -> None:
    def train() -> None:
        def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
            storage = trireme.get_context().get_storage()
            target = Checkpoint(storage.build_checkpoint_path_from_name(name), storage.storage_filesystem)
            with target.filesystem.open_output_stream(f"{target.path}/file") as stream:
                stream.write(b"stored by me")
            return target

        mine = store(Checkpoint("/tmp"), "mine")
        trireme.report({}, checkpoint=mine, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        trireme.report({}, checkpoint=Checkpoint(os.getcwd()), checkpoint_upload_fn=store)
        with pytest.raises(ValueError, match="directly inside"):
            local = Checkpoint(os.getcwd())
            trireme.report({}, checkpoint=local, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)

    result = fit(train, bucket)
    assert [os.path.basename(c.path) for c, _ in result.best_checkpoints or []] == ["mine", "checkpoint_000001"]
    assert result.checkpoint is not None
    assert Path(result.checkpoint.to_directory(), "file").read_text() == "stored by me"


def test_resume_from_a_checkpoint_in_another_storage(bucket: Bucket, results: Path) -> None:
    first = fit(count_to(3), bucket)
    trainer = DataParallelTrainer(
        count_to(5), resume_from_checkpoint=first.checkpoint, run_config=RunConfig(name="local", storage_path=results)
    )
    assert trainer.fit().return_value == [3, 4]
    local = Checkpoint(results / "local/checkpoint_000001")
    trainer = DataParallelTrainer(
        count_to(6),
        resume_from_checkpoint=local,
        run_config=RunConfig(name="remote", storage_path=bucket.uri("results")),
    )
    assert trainer.fit().return_value == [5]


def test_a_damaged_object_is_named_and_the_checkpoint_before_is_used(bucket: Bucket) -> None:
    fit(count_to(3), bucket)
    damaged = f"{bucket.name}/results/run/checkpoint_000002/state.json"
    with bucket.filesystem.open_output_stream(damaged) as stream:
        stream.write(b"{}")
    with pytest.raises(Exception, match=r"state\.json"):
        Checkpoint(bucket.uri("results/run/checkpoint_000002")).to_directory()
    assert fit(count_to(4), bucket).return_value == [2, 3]


def test_a_server_that_vanishes_and_returns(bucket: Bucket, tmp_path: Path) -> None:
    vanished = tmp_path / "vanished"

    def train() -> None:
        for step in range(6):
            if step == 2:  # most of it is not stored yet
                assert processes.wait_until(vanished.exists)
            mode = CheckpointUploadMode.ASYNC if step % 2 else CheckpointUploadMode.SYNC
            state = Checkpoint.from_dict({"step": step, "data": os.urandom(100_000)})
            trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=mode)

    def interrupt() -> None:
        def begun() -> bool:
            return any("checkpoint_000001" in key for key in bucket.objects())

        assert processes.wait_until(begun)
        bucket.door.shut()
        vanished.touch()
        # More often than pyarrow retries by itself.
        assert processes.wait_until(lambda: bucket.door.refused > 12, 60)
        bucket.door.open()

    meddler = threading.Thread(target=interrupt)
    meddler.start()
    try:
        result = fit(train, bucket, 2)
    finally:
        meddler.join()
        bucket.door.open()
    assert [c.to_dict()["step"] for c, _ in result.best_checkpoints or []] == list(range(6))


def test_refused_before_anything_starts(bucket: Bucket, results: Path) -> None:
    for config, words in (
        (RunConfig(storage_path="s3://no-such-bucket/x"), "no bucket named 'no-such-bucket'"),
        (RunConfig(storage_path="x/y", storage_filesystem=bucket.connect()), "no bucket named 'x'"),
        (RunConfig(storage_path=bucket.uri("x"), storage_filesystem=bucket.connect()), "or the URI alone"),
    ):
        with pytest.raises(ConfigError, match=words):
            DataParallelTrainer(count_to(1), run_config=config).fit()
    assert not results.exists()


def test_from_path_of_nothing(bucket: Bucket) -> None:
    with pytest.raises(RuntimeError, match=f"s3://{bucket.name}/nothing is not a run folder"):
        Result.from_path(bucket.uri("nothing"))


def test_a_second_driver_is_refused_and_a_crash_leaves_no_lease_behind(bucket: Bucket, script: Any) -> None:
    process = script.start(
        """
        import sys, time, trireme
        from trireme import *

        def train():
            trireme.report({"a": 1}, checkpoint=Checkpoint.from_dict({"step": 0}))
            time.sleep(600)

        if __name__ == "__main__":
            DataParallelTrainer(train, run_config=RunConfig(name="run", storage_path=sys.argv[1])).fit()
        """,
        bucket.uri("results"),
    )
    manifest = "results/run/checkpoint_000000/.trireme_manifest.json"
    assert processes.wait_until(lambda: manifest in bucket.objects()), process.communicate()
    with pytest.raises(ConfigError, match="run"):
        fit(count_to(1), bucket)
    process.kill()
    process.wait()
    assert processes.wait_until(lambda: not processes.left_over())
    assert fit(count_to(2), bucket).return_value == [1]


def test_keys_are_nowhere_in_the_run_folder(bucket: Bucket) -> None:
    result = fit(count_to(1), bucket, by_uri=False)
    for key in [key for key in bucket.objects() if not key.endswith("/")]:
        with bucket.filesystem.open_input_stream(f"{bucket.name}/{key}") as stream:
            content = stream.read()
        # worker_runtime_env and similar fields may be there; the key of the filesystem must not.
        assert b"testing" not in content, key
    assert result.path is not None
