"""report(checkpoint_upload_mode=...): how files are stored and deleted."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from runs import trireme_command
from trireme import (
    Checkpoint,
    CheckpointUploadMode,
    DataConfig,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    UserCallback,
    WorkerGroupError,
)

ASYNC, SYNC, NO_UPLOAD = CheckpointUploadMode.ASYNC, CheckpointUploadMode.SYNC, CheckpointUploadMode.NO_UPLOAD


def fit(function: Any, workers: int = 1, **run: Any) -> Result:
    scaling, config = ScalingConfig(num_workers=workers), RunConfig(name="run", **run)
    return DataParallelTrainer(function, scaling_config=scaling, run_config=config).fit()


def make_folder(text: str = "content") -> Path:
    folder = Path(tempfile.mkdtemp())
    (folder / "file").write_text(text)
    return folder


def names_of(result: Result) -> list[str]:
    return [os.path.basename(checkpoint.path) for checkpoint, _ in result.best_checkpoints or []]


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("delete", [None, True, False])
def test_the_local_directory(mode: CheckpointUploadMode, delete: bool | None) -> None:
    def train() -> str:
        folder = make_folder()
        trireme.report(
            {"a": 1},
            checkpoint=Checkpoint(folder),
            checkpoint_upload_mode=mode,
            delete_local_checkpoint_after_upload=delete,
        )
        return str(folder)

    result = fit(train)
    kept = not (mode.default_delete_local_checkpoint_after_upload() if delete is None else delete)
    assert os.path.exists(result.return_value) == kept
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "file").read_text() == "content"


def test_defaults() -> None:
    assert ASYNC.default_delete_local_checkpoint_after_upload()
    assert not SYNC.default_delete_local_checkpoint_after_upload()
    assert not NO_UPLOAD.default_delete_local_checkpoint_after_upload()


def test_everything_pending_is_stored_at_the_end() -> None:
    def train() -> None:
        for step in range(10):
            state = Checkpoint.from_dict({"step": step, "data": os.urandom(100_000)})
            trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=ASYNC)

    result = fit(train, 2)
    assert len(names_of(result)) == 10
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints or []] == list(range(10))


def test_a_state_may_change_as_soon_as_report_returns() -> None:
    numpy = pytest.importorskip("numpy")

    def train() -> None:
        weights = numpy.zeros(1_000_000)
        for step in range(4):
            weights[:] = step
            state = Checkpoint.from_dict({"weights": weights, "step": step})
            trireme.report({}, checkpoint=state, checkpoint_upload_mode=ASYNC)
            weights[:] = -1

    result = fit(train)
    for step, (checkpoint, _) in enumerate(result.best_checkpoints or []):
        assert (numpy.asarray(checkpoint.to_dict()["weights"]) == step).all()


def test_get_checkpoint_after_each_mode() -> None:
    def train() -> None:
        assert trireme.get_checkpoint() is None
        trireme.report({}, checkpoint=Checkpoint(make_folder("sync")))
        assert read(trireme.get_checkpoint()) == "sync"
        trireme.report({}, checkpoint=Checkpoint(make_folder("async")), checkpoint_upload_mode=ASYNC)
        assert read(trireme.get_checkpoint()) in ("sync", "async"), "complete at any time"
        assert processes.wait_until(lambda: read(trireme.get_checkpoint()) == "async")
        mine = Path(trireme.get_context().get_storage().build_checkpoint_path_from_name("mine"))
        mine.mkdir()
        (mine / "file").write_text("mine")
        checkpoint = Checkpoint(mine)
        trireme.report({}, checkpoint=checkpoint, checkpoint_upload_mode=NO_UPLOAD)
        assert trireme.get_checkpoint() == checkpoint

    def read(checkpoint: Checkpoint | None) -> str:
        assert checkpoint is not None
        return Path(checkpoint.path, "file").read_text()

    result = fit(train)
    assert names_of(result) == ["checkpoint_000000", "checkpoint_000001", "mine"]


def test_a_checkpoint_of_several_ranks() -> None:
    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        folder = Path(tempfile.mkdtemp())
        (folder / f"shard_{rank}").write_text(str(rank))
        trireme.report({"rank": rank}, checkpoint=Checkpoint(folder), checkpoint_upload_mode=ASYNC)

    result = fit(train, 3)
    assert result.checkpoint is not None
    assert {"shard_0", "shard_1", "shard_2"} <= set(os.listdir(result.checkpoint.path))


def test_states_of_several_ranks() -> None:
    def train() -> Any:
        rank = trireme.get_context().get_world_rank()
        trireme.report({}, checkpoint=Checkpoint.from_dict({"rank": rank}))
        trireme.collective.barrier()
        checkpoint = trireme.get_checkpoint()
        assert checkpoint is not None
        assert trireme.load_state(checkpoint) == {"rank": rank}, "its own part"

    result = fit(train, 2)
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict() == {"rank": 0}
    assert trireme.load_state(result.checkpoint, rank=1) == {"rank": 1}


def test_upload_function() -> None:
    def train() -> None:
        seen = []

        def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
            seen.append(name)
            target = trireme.get_context().get_storage().build_checkpoint_path_from_name(name)
            stored = Checkpoint(checkpoint.to_directory(target))
            Path(target, "added").write_text("by my function")
            return stored

        for mode in (SYNC, ASYNC):
            folder = make_folder()
            trireme.report({}, checkpoint=Checkpoint(folder), checkpoint_upload_mode=mode, checkpoint_upload_fn=store)
            assert mode is ASYNC or folder.exists()
        trireme.get_all_reported_checkpoints()
        assert seen == ["checkpoint_000000", "checkpoint_000001"]

    result = fit(train)
    assert names_of(result) == ["checkpoint_000000", "checkpoint_000001"]
    for checkpoint, _ in result.best_checkpoints or []:
        assert Path(checkpoint.path, "added").read_text() == "by my function"
        assert Path(checkpoint.path, "file").read_text() == "content"


def outside(checkpoint: Checkpoint, name: str) -> Checkpoint:
    return Checkpoint(tempfile.mkdtemp())


def fails(checkpoint: Checkpoint, name: str) -> Checkpoint:
    raise OSError("the disk is full")


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda checkpoint, name: "path", "must return a trireme.Checkpoint, got str"),
        (outside, "directly inside the run folder"),
        (fails, "the disk is full"),
    ],
)
def test_upload_function_that_does_not_work(mode: CheckpointUploadMode, function: Any, words: str) -> None:
    def train() -> None:
        checkpoint = Checkpoint(make_folder())
        trireme.report({}, checkpoint=checkpoint, checkpoint_upload_mode=mode, checkpoint_upload_fn=function)
        trireme.report({})

    with pytest.raises(WorkerGroupError, match=words):
        fit(train)


class MyError(Exception):
    pass


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_the_exception_of_an_upload_function_is_kept(mode: CheckpointUploadMode) -> None:
    def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
        raise MyError("the bucket is gone")

    def train() -> None:
        checkpoint = Checkpoint(make_folder())
        trireme.report({}, checkpoint=checkpoint, checkpoint_upload_mode=mode, checkpoint_upload_fn=store)

    with pytest.raises(WorkerGroupError) as caught:
        fit(train)
    assert isinstance(caught.value.__cause__, MyError)
    assert str(caught.value.__cause__) == "the bucket is gone"
    assert "in store" in str(caught.value), "the traceback"
    assert "other workers" not in str(caught.value), "it is the same failure of the same rank"


def test_an_upload_function_that_the_training_function_may_catch() -> None:
    def train() -> str:
        try:
            trireme.report({}, checkpoint=Checkpoint(make_folder()), checkpoint_upload_fn=fails)
        except OSError as error:
            return str(error)
        return "nothing was raised"

    with pytest.raises(WorkerGroupError, match="the disk is full"):
        fit(train)  # an announced checkpoint that is not stored is a failure


def test_the_target_does_not_exist_yet() -> None:
    def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
        import shutil

        target = trireme.get_context().get_storage().build_checkpoint_path_from_name(name)
        with checkpoint.as_directory() as folder:
            shutil.copytree(folder, target)
        return Checkpoint(target)

    def train() -> None:
        for mode in (SYNC, ASYNC):
            trireme.report(
                {},
                checkpoint=Checkpoint(make_folder(mode.name)),
                checkpoint_upload_mode=mode,
                checkpoint_upload_fn=store,
            )

    result = fit(train)
    assert names_of(result) == ["checkpoint_000000", "checkpoint_000001"]
    texts = [Path(checkpoint.path, "file").read_text() for checkpoint, _ in result.best_checkpoints or []]
    assert texts == ["SYNC", "ASYNC"]
    assert not list(Path(result.path or "").glob(".trireme_announced/*"))


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
def test_the_upload_function_may_be_what_makes_the_files(mode: CheckpointUploadMode) -> None:
    """Like torch's async_save(): report() is called while the files are still being written."""

    def train() -> str:
        import threading

        folder = Path(tempfile.mkdtemp(), "made_later")

        def save() -> None:
            folder.mkdir()
            (folder / "file").write_text("saved")

        saver = threading.Thread(target=save)

        def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
            import shutil

            saver.start()
            saver.join()
            target = trireme.get_context().get_storage().build_checkpoint_path_from_name(name)
            shutil.copytree(checkpoint.path, target)
            return Checkpoint(target)

        trireme.report({}, checkpoint=Checkpoint(folder), checkpoint_upload_mode=mode, checkpoint_upload_fn=store)
        trireme.get_all_reported_checkpoints()
        return str(folder)

    result = fit(train)
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "file").read_text() == "saved"
    assert os.path.exists(result.return_value) == (mode is SYNC)


def test_metadata_of_the_run_reaches_what_an_upload_function_stores() -> None:
    def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
        import shutil

        target = trireme.get_context().get_storage().build_checkpoint_path_from_name(name)
        shutil.copytree(checkpoint.path, target)
        return Checkpoint(target)

    def train() -> None:
        trireme.report({}, checkpoint=Checkpoint(make_folder()), checkpoint_upload_fn=store)

    trainer = DataParallelTrainer(train, metadata={"team": "a"}, run_config=RunConfig(name="run"))
    checkpoint = trainer.fit().checkpoint
    assert checkpoint is not None
    assert checkpoint.get_metadata() == {"team": "a"}


def test_a_worker_that_dies_in_its_upload_function_leaves_nothing() -> None:
    def store(checkpoint: Checkpoint, name: str) -> Checkpoint:
        import shutil
        import signal

        target = trireme.get_context().get_storage().build_checkpoint_path_from_name(name)
        shutil.copytree(checkpoint.path, target)
        if trireme.get_context()._attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return Checkpoint(target)

    def train() -> None:
        trireme.report({}, checkpoint=Checkpoint(make_folder()), checkpoint_upload_fn=store, checkpoint_dir_name="best")

    result = fit(train, failure_config=trireme.FailureConfig(max_failures=1))
    assert names_of(result) == ["best"]


def test_an_upload_that_fails_behind_fails_the_run_with_its_cause() -> None:
    def train() -> None:
        import time

        folder = make_folder()
        (folder / "link").symlink_to("/no/such/file")
        trireme.report({}, checkpoint=Checkpoint(folder), checkpoint_upload_mode=ASYNC)
        time.sleep(600)

    with pytest.raises(trireme.TrainingFailedError, match="link"):
        fit(train)


def within(path: str) -> Any:
    def make() -> Checkpoint:
        folder = Path(trireme.get_context().get_storage().experiment_fs_path, path)
        folder.mkdir(parents=True, exist_ok=True)
        return Checkpoint(folder)

    return make


@pytest.mark.parametrize(
    ("make", "options", "error", "words"),
    [
        (lambda: Checkpoint(make_folder()), {"checkpoint_upload_mode": NO_UPLOAD}, ValueError, "directly inside"),
        (within("a/b"), {"checkpoint_upload_mode": NO_UPLOAD}, ValueError, "directly inside"),
        (within("."), {"delete_local_checkpoint_after_upload": True}, ValueError, "would delete the run folder"),
        (within(".."), {"delete_local_checkpoint_after_upload": True}, ValueError, "would delete the run folder"),
        (within("x"), {"delete_local_checkpoint_after_upload": True}, ValueError, "which is part of the run folder"),
        (lambda: Checkpoint("/no/such/folder"), {}, FileNotFoundError, "/no/such/folder"),
        (
            lambda: Checkpoint(make_folder()),
            {"checkpoint_upload_mode": "SYNC"},
            ValueError,
            "CheckpointUploadMode.SYNC",
        ),
        (lambda: Checkpoint(make_folder()), {"checkpoint_upload_fn": 3}, TypeError, "must be a function"),
        (lambda: Checkpoint(make_folder()), {"checkpoint_dir_name": "../x"}, RuntimeError, r"\.\./x"),
        (lambda: Checkpoint(make_folder()), {"checkpoint_dir_name": "/x"}, RuntimeError, "/x"),
        (lambda: Checkpoint.from_dict({"a": threading_lock()}), {}, TypeError, "'a'"),
        (lambda: Checkpoint.from_dict({"a": 1}), {"checkpoint_upload_mode": NO_UPLOAD}, ValueError, "directly inside"),
    ],
)
def test_refused(make: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    def train() -> None:
        trireme.report({"a": 1}, checkpoint=make(), **options)

    with pytest.raises(WorkerGroupError, match=words) as caught:
        fit(train)
    assert isinstance(caught.value.__cause__, error)


class AsksForStacks(UserCallback):
    def __init__(self) -> None:
        self.asked: subprocess.CompletedProcess[str] | None = None

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if self.asked is None:
            self.asked = trireme_command("stack", "run")
            Path(run_context.path, "asked").touch()


def test_no_checkpoint_has_the_name_of_what_the_run_keeps_in_its_folder(results: Path) -> None:
    pytest.importorskip("pyarrow")
    import trireme.data

    def train() -> Any:
        asked = Path(trireme.get_context().get_storage().build_checkpoint_path_from_name("asked"))
        for _ in trireme.get_dataset_shard("train").iter_batches():
            pass
        trireme.report({"a": 1}, checkpoint=Checkpoint.from_dict({}))
        assert processes.wait_until(asked.exists)
        return {1, 2}  # only a pickle can hold it

    def report_as(names: list[str]) -> Any:
        def train() -> list[str]:
            accepted = []
            for name in names:
                try:
                    trireme.report({}, checkpoint=Checkpoint.from_dict({}), checkpoint_dir_name=name)
                    accepted.append(name)
                except RuntimeError as error:
                    assert "the run itself uses it" in str(error)
            return accepted

        return train

    asks = AsksForStacks()
    DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="run", callbacks=[asks]),
        datasets={"train": trireme.data.range(10)},
        dataset_config=DataConfig(log_samples=True),
    ).fit()
    assert asks.asked is not None and asks.asked.returncode == 0, asks.asked
    kept = {path.name for path in (results / "run").iterdir() if not path.name.startswith(("checkpoint_", "."))}
    kept.remove("asked")
    assert kept >= {"logs", "data", "stacks", "run.json", "events.jsonl", "trainer.pkl", "return_value.pkl"}
    result = DataParallelTrainer(report_as(sorted(kept)), run_config=RunConfig(name="other")).fit()
    assert result.return_value == []


def threading_lock() -> Any:
    import threading

    return threading.Lock()


def test_async_from_the_run_folder_itself_keeps_it() -> None:
    def train() -> None:
        checkpoint = within("mine")()
        Path(checkpoint.path, "file").write_text("x")
        trireme.report({}, checkpoint=checkpoint, checkpoint_upload_mode=ASYNC, checkpoint_dir_name="mine")

    result = fit(train)
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "file").read_text() == "x"


def test_metadata_of_the_trainer_is_in_every_checkpoint() -> None:
    def train() -> None:
        trireme.report({}, checkpoint=Checkpoint(make_folder()))
        own = Checkpoint(make_folder())
        own.set_metadata({"team": "mine", "more": 1})
        trireme.report({}, checkpoint=own)
        trireme.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))

    trainer = DataParallelTrainer(train, run_config=RunConfig(name="run"), metadata={"team": "blue"})
    found = [checkpoint.get_metadata() for checkpoint, _ in trainer.fit().best_checkpoints or []]
    assert found == [{"team": "blue"}, {"team": "mine", "more": 1}, {"team": "blue"}]


def test_metadata_may_change_after_the_commit() -> None:
    def train() -> Any:
        checkpoint = trireme.get_checkpoint()
        if checkpoint is None:
            trireme.report({}, checkpoint=Checkpoint(make_folder()))
            return None
        return checkpoint.get_metadata()

    result = fit(train)
    assert result.checkpoint is not None
    result.checkpoint.set_metadata({"note": "good"})
    assert fit(train).return_value == {"note": "good"}, "it is not damaged"
    assert Path(result.checkpoint.to_directory(), "file").exists()


def test_local_mode_takes_every_mode_and_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def train() -> None:
        for mode in CheckpointUploadMode:
            trireme.report({}, checkpoint=Checkpoint(tmp_path), checkpoint_upload_mode=mode)

    result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit()
    assert result.checkpoint == Checkpoint(tmp_path)
    assert (tmp_path / "file").exists()
