"""Faults of storage and processes must not lose a committed checkpoint. Uses real disks and real kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from trireme import Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, _core

SEED = int(os.environ.get("TRIREME_TEST_SEED", "7"))

COUNTS = """
    import sys, time, trireme
    from trireme import Checkpoint, CheckpointUploadMode, DataParallelTrainer, RunConfig, ScalingConfig

    def train(config):
        checkpoint = trireme.get_checkpoint()
        begin = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        rank = trireme.get_context().get_world_rank()
        for step in range(begin, config["steps"]):
            state = Checkpoint.from_dict({"step": step, "rank": rank, "data": [step] * 1000})
            mode = CheckpointUploadMode.ASYNC if step % 2 else CheckpointUploadMode.SYNC
            trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=mode)
            time.sleep(0.05)  # the test reads all checkpoints again and again: they must not become thousands

    if __name__ == "__main__":
        DataParallelTrainer(
            train,
            train_loop_config={"steps": int(sys.argv[2])},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="run", storage_path=sys.argv[1]),
        ).fit()
"""


def committed(run: Path) -> list[int]:
    """The steps of all committed checkpoints, after verifying each of them."""
    steps = []
    for checkpoint, metrics in trireme.Result.from_path(run).best_checkpoints or []:
        _core.Storage().verify(checkpoint.path)
        assert checkpoint.to_dict()["step"] == metrics["step"]
        steps.append(metrics["step"])
    return steps


class Reader(threading.Thread):
    """Reads the run continuously, like a reader in another process."""

    def __init__(self, run: Path) -> None:
        super().__init__(daemon=True)
        self.run_path = run
        self.looks = 0
        self.problem: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        newest = -1
        while not self.over.is_set():
            try:
                if (self.run_path / "run.json").exists():
                    seen = committed(self.run_path)
                    assert seen == list(range(len(seen)))
                    assert max(seen, default=-1) >= newest
                    newest = max(seen, default=-1)
                    self.looks += 1
            except BaseException as problem:  # raised by the test
                self.problem = problem
                return
            time.sleep(0.01)


@pytest.mark.slow
def test_drivers_killed_at_any_moment(results: Path, script: Any) -> None:
    chance = random.Random(SEED)
    run = results / "run"
    reader = Reader(run)
    reader.start()
    before: list[int] = []
    for _ in range(6):
        driver = script.start(COUNTS, str(results), "100000")
        have = len(before)
        assert processes.wait_until(lambda have=have: (run / "run.json").exists() and len(committed(run)) > have, 60)
        time.sleep(chance.uniform(0, 0.3))
        driver.kill()
        driver.communicate()
        assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()
        after = committed(run)
        assert after[: len(before)] == before, "committed checkpoints remain"
        before = after
    done = script.run(COUNTS, str(results), str(before[-1] + 3))
    assert done.returncode == 0, done.stderr
    assert f"continued from checkpoint_{before[-1]:06}" in done.stdout
    assert committed(run) == list(range(before[-1] + 3))
    reader.over.set()
    reader.join()
    assert reader.problem is None, reader.problem
    assert reader.looks > 10


def in_small_storage(script: Any, folder: Path, options: str, source: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in its own mount namespace, where the folder is a filesystem with these options."""
    mount = f"mount -t tmpfs -o {options} tmpfs {folder}"
    allowed = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("this machine does not let us mount")
    command = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable]
    return script.run(source, str(folder), command=command)


def test_a_full_disk(tmp_path: Path, script: Any) -> None:
    storage = tmp_path / "small"
    storage.mkdir()
    done = in_small_storage(
        script,
        storage,
        "size=2m",
        """
        import sys, tempfile, trireme
        from pathlib import Path
        from trireme import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, _core

        def train():
            for step in range(100):
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, "model.bin").write_bytes(b"x" * 600_000)
                    trireme.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))

        if __name__ == "__main__":
            run_config = RunConfig(name="run", storage_path=sys.argv[1])
            try:
                DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run_config).fit()
            except trireme.TrainingFailedError as error:
                print("raised:", error)
            kept = trireme.Result.from_path(sys.argv[1] + "/run").best_checkpoints
            for checkpoint, metrics in kept:
                _core.Storage().verify(checkpoint.path)
            print("whole:", [metrics["step"] for _, metrics in kept])
            leftovers = [p.name for p in Path(sys.argv[1]).rglob("*") if p.name.endswith((".tmp", ".part"))]
            print("leftovers:", leftovers)
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkpoint_000003 could not be stored: could not store 'model.bin' (600000 bytes)" in done.stdout
    assert "No space left on device (errno 28); free space there or choose another storage_path" in done.stdout
    assert "whole: [0, 1, 2]" in done.stdout
    assert "leftovers: []" in done.stdout


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ('raise ValueError("the real cause")', "failed: ValueError: the real cause"),
        ("pass", "failed: OSError: [Errno 28] No space left on device"),
        ("os._exit(1)", "exit code 1 before the training function returned; no space is left for its log"),
    ],
)
def test_a_full_log_disk_hides_no_cause(tmp_path: Path, script: Any, end: str, said: str) -> None:
    storage = tmp_path / "small"
    storage.mkdir()
    done = in_small_storage(
        script,
        storage,
        "size=256k",
        f"""
        import os, sys, trireme

        def train():
            try:
                while True:
                    os.write(1, b"x" * 4096)
            except OSError:
                {end}
            while True:
                print("x" * 1000)

        run_config = trireme.RunConfig(name="run", storage_path=sys.argv[1])
        trireme.DataParallelTrainer(train, run_config=run_config).fit()
        """,
    )
    assert done.returncode == 1
    assert said in done.stderr


def test_a_read_only_storage_is_refused(tmp_path: Path, script: Any) -> None:
    storage = tmp_path / "small"
    storage.mkdir()
    done = in_small_storage(
        script,
        storage,
        "ro",
        """
        import sys
        from trireme import DataParallelTrainer, RunConfig, ScalingConfig

        def train():
            print("started")

        if __name__ == "__main__":
            run_config = RunConfig(name="run", storage_path=sys.argv[1])
            DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run_config).fit()
        """,
    )
    assert done.returncode != 0
    assert f"RunConfig.storage_path = '{storage}' cannot be written" in done.stderr
    assert "Read-only file system" in done.stderr
    assert "started" not in done.stdout


def test_a_worker_killed_while_it_uploads(run_config: RunConfig) -> None:
    def train() -> None:
        checkpoint = trireme.get_checkpoint()
        begin = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        context = trireme.get_context()
        for step in range(begin, 4):
            state = {"step": step, "data": bytes(4_000_000)}
            trireme.report(
                {"step": step},
                checkpoint=Checkpoint.from_dict(state),
                checkpoint_upload_mode=trireme.CheckpointUploadMode.ASYNC,
            )
            if begin == 0 and step == 2 and context.get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)  # with one upload in progress and possibly another waiting
            trireme.collective.barrier()

    result = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=run_config.replace(failure_config=FailureConfig(max_failures=1)),
    ).fit()
    assert result.path is not None
    assert committed(Path(result.path))[-1] == 3
    names = {path.name for path in Path(result.path).iterdir() if path.name.startswith("checkpoint_")}
    assert names == {f"checkpoint_{step:06}" for step in committed(Path(result.path))}, "no partial files remain"


def test_a_damaged_checkpoint_is_passed_over(run_config: RunConfig) -> None:
    def train() -> int:
        checkpoint = trireme.get_checkpoint()
        begin = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(begin, begin + 3):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "data": bytes(10_000)}))
        return begin

    trainer = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run_config)
    path = Path(str(trainer.fit().path))
    damaged = path / "checkpoint_000002" / "state.json"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    (path / "checkpoint_000001" / "state.json").unlink()

    with pytest.raises(RuntimeError, match=r"checkpoint_000002/state\.json"):
        Checkpoint(path / "checkpoint_000002").to_dict()
    result = trainer.fit()
    assert result.return_value == 1
    assert committed(path) == [0, 1, 2, 3]
    warnings = [e["message"] for e in _core.read_run(str(path))["events"] if e["event"] == "warning"]
    assert any("checkpoint_000002 is damaged" in w and "continues from checkpoint_000000" in w for w in warnings)
    assert any("checkpoint_000001 is damaged" in w and "state.json" in w for w in warnings)


def test_many_small_files(run_config: RunConfig, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for part in range(20):
        (folder / f"part_{part}").mkdir(parents=True)
        for number in range(250):
            (folder / f"part_{part}" / f"{number}.txt").write_text(f"{part} {number}")

    def train(config: dict[str, str]) -> None:
        trireme.report({}, checkpoint=Checkpoint.from_directory(config["folder"]))

    result = DataParallelTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=run_config,
    ).fit()
    assert result.checkpoint is not None
    _core.Storage().verify(result.checkpoint.path)
    assert len(_core.Storage().read_manifest(result.checkpoint.path)["files"]) == 5000
    copy = result.checkpoint.to_directory(tmp_path / "copy")
    assert Path(copy, "part_7", "123.txt").read_text() == "7 123"


def test_pending_uploads_are_finished_by_a_stop(run_config: RunConfig, script: Any, results: Path) -> None:
    driver = script.start(
        """
        import sys, time, trireme
        from trireme import Checkpoint, CheckpointUploadMode, DataParallelTrainer, RunConfig, ScalingConfig

        def train():
            for step in range(2):
                state = Checkpoint.from_dict({"step": step, "data": bytes(30_000_000)})
                trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
            print("reported", flush=True)
            time.sleep(600)

        if __name__ == "__main__":
            run_config = RunConfig(name="run", storage_path=sys.argv[1], stop_grace_s=60)  # a disk may be busy
            DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run_config).fit()
        """,
        str(results),
    )
    for line in driver.stdout:
        if "reported" in line:
            break
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=120)
    assert committed(results / "run") == [0, 1]


def test_a_deleted_run_folder_does_not_hang(run_config: RunConfig) -> None:
    def train(config: dict[str, str]) -> None:
        trireme.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
        # Committing creates files, so a folder that was deleted before it could come back.
        while '"checkpoint_committed"' not in Path(config["path"], "events.jsonl").read_text():
            time.sleep(0.01)
        while os.path.exists(config["path"]):  # the controller may be about to write there
            shutil.rmtree(config["path"], ignore_errors=True)
        trireme.report({"step": 1}, checkpoint=Checkpoint.from_dict({"step": 1}))

    path = Path(str(run_config.storage_path)) / "run"
    with pytest.raises(trireme.TrainingFailedError, match=r"does not see the run.s storage|could not"):
        DataParallelTrainer(
            train,
            train_loop_config={"path": str(path)},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=run_config.replace(checkpoint_config=CheckpointConfig(num_to_keep=1)),
        ).fit()
