"""Nodes without a shared file system: what the driver and the workers store and import does not exist there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cpp_programs
import namespaces
import processes
import trireme
from runs import events, fit, trireme_command
from test_cluster_faults import LEASES, OnceAt, nodes, steps_until  # noqa: F401 (nodes is a fixture)
from trireme import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    collective,
)


def engine(made: namespaces.Nodes, hidden: Path) -> tuple[str, dict[str, Any]]:
    options = {"launcher": namespaces.launcher_without(hidden), "driver_host": namespaces.DRIVER, "num_cpus": 2}
    return f"hosts:{','.join(made.hosts)}", {**options, **LEASES}


def arguments(made: namespaces.Nodes, hidden: Path) -> list[str]:
    name, options = engine(made, hidden)
    given = [f"--engine-option={key}={value}" for key, value in options.items()]
    return ["--engine", name, *given]


@pytest.fixture
def apart(
    nodes: namespaces.Nodes,  # noqa: F811
    declared: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[namespaces.Nodes]:
    """Two nodes that see neither the run folder nor anything else in tmp_path."""
    monkeypatch.setenv("TRIREME_LEASE_S", "4")
    name, options = engine(nodes, tmp_path)
    declared(engine=name, engine_options=options)
    yield nodes


def kill_node(made: namespaces.Nodes, host: str, done: Path) -> None:
    inside = made.inside(host)
    os.kill(min(inside), signal.SIGKILL)  # unshare --kill-child takes the namespace with it
    assert processes.wait_until(lambda: not set(inside) & set(made.inside(host)))
    done.touch()


def test_checkpoints_survive_a_node(apart: namespaces.Nodes, tmp_path: Path) -> None:
    """Every rank stores a part. One node is killed, with everything that was stored there."""
    hidden = tmp_path / "results"

    def train() -> int:
        context = trireme.get_context()
        assert not os.path.exists(hidden)
        checkpoint = trireme.get_checkpoint()
        first = 0
        if checkpoint is not None:
            first = checkpoint.to_dict()["step"] + 1
            with checkpoint.as_directory() as folder:
                for rank in range(4):
                    text = Path(folder, f"part_{rank}.txt").read_text()
                    assert text == f"{rank} {first - 1}" * 1000
        for step in range(first, 8):
            part = Path(tempfile.mkdtemp())
            rank = context.get_world_rank()
            (part / f"part_{rank}.txt").write_text(f"{rank} {step}" * 1000)
            if rank == 0:
                trireme.save_state(part, {"step": step})
            trireme.report(
                {"step": step},
                checkpoint=Checkpoint(part),
                delete_local_checkpoint_after_upload=True,
            )
            if step == 2 and first == 0:  # the node is killed now
                processes.wait_until(lambda: False, 30.0)
            newest = trireme.get_checkpoint()
            assert newest is not None
        return first

    callback = OnceAt(2, lambda folder: kill_node(apart, apart.hosts[1], tmp_path / "done"))
    result = fit(train, 4, max_failures=1, callbacks=[callback], num_to_keep=2)
    assert len(events(result.path, "node_lost")) == 1
    assert result.return_value in (2, 3)
    assert result.checkpoint is not None
    assert result.checkpoint.path.startswith(str(hidden))
    assert result.checkpoint.to_dict() == {"step": 7}
    stored = sorted(each.name for each in Path(result.checkpoint.path).glob("part_*"))
    assert stored == [f"part_{rank}.txt" for rank in range(4)]
    left = {each.name for each in Path(result.path).iterdir() if each.name.startswith((".trireme_in", ".trireme_co"))}
    assert not left


def test_states_are_stored_and_listed(apart: namespaces.Nodes, tmp_path: Path) -> None:
    given = tmp_path / "given"
    trireme.save_state(given, {"step": 41})

    def train() -> list[Any]:
        first = trireme.get_checkpoint()
        assert first is not None
        start = first.to_dict()["step"]
        for step in range(3):
            mine = trireme.get_context().get_world_rank() == 0
            mode = trireme.CheckpointUploadMode.ASYNC if step == 1 else trireme.CheckpointUploadMode.SYNC
            checkpoint = Checkpoint.from_dict({"step": start + step + 1}) if mine else None
            trireme.report({"step": step}, checkpoint=checkpoint, checkpoint_upload_mode=mode)
            collective.barrier()
        listed = trireme.get_all_reported_checkpoints()
        newest = listed[-1].checkpoint
        with pytest.raises(RuntimeError, match=r"on the driver's machine, in no pyarrow filesystem"):
            _ = newest.filesystem
        return [start, [each.checkpoint.to_dict()["step"] for each in listed], newest]

    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=4, trainer_resources={"CPU": 0}),
        run_config=RunConfig(name="run", checkpoint_config=CheckpointConfig(num_to_keep=2)),
        resume_from_checkpoint=Checkpoint(given),
    )
    start, steps, newest = trainer.fit().return_value
    assert (start, steps) == (41, [43, 44])
    assert newest.to_dict() == {"step": 44}  # returned to the driver, it is the folder here


def test_every_row_is_taken_once_when_a_node_is_lost(apart: namespaces.Nodes, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import trireme.data

    def train() -> None:
        shard = trireme.get_dataset_shard("train")
        checkpoint = trireme.get_checkpoint()
        for epoch in range(checkpoint.to_dict()["epoch"] if checkpoint else 0, 2):
            for number, _ in enumerate(shard.iter_batches(batch_size=10)):
                mine = trireme.get_context().get_world_rank() == 0
                state = Checkpoint.from_dict({"epoch": epoch}) if mine else None
                trireme.report({"step": number}, checkpoint=state)
                if number == 3 and trireme.get_context()._attempt == 0:
                    processes.wait_until(lambda: False, 30.0)

    callback = OnceAt(3, lambda folder: kill_node(apart, apart.hosts[0], tmp_path / "done"))
    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=4, trainer_resources={"CPU": 0}),
        run_config=RunConfig(name="run", failure_config=FailureConfig(max_failures=1), callbacks=[callback]),
        datasets={"train": trireme.data.range(320)},
        dataset_config=trireme.DataConfig(log_samples=True),
    )
    result = trainer.fit()
    assert len(events(result.path, "node_lost")) == 1
    verified = trireme_command("data", "verify", str(result.path))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "every row once" in verified.stdout


PROJECT = {
    "helper.py": "from package import VALUE\n\ndef value():\n    return VALUE\n",
    "package/__init__.py": "VALUE = 42\n",
    "settings.txt": "settings",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_code_of_a_script_is_sent(
    apart: namespaces.Nodes, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules in the script's folder, and files that it opens by relative paths."""
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    monkeypatch.chdir(project)
    (project / "script.py").write_text(
        f"""
import helper
import trireme
from trireme import DataParallelTrainer, ScalingConfig


def train():
    import os

    assert not os.path.exists({str(project)!r})
    with open("settings.txt") as file:
        print(file.read(), helper.value(), flush=True)


if __name__ == "__main__":
    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit()
"""
    )
    trireme.shutdown()
    done = trireme_command("run", *arguments(apart, tmp_path), "script.py")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = list(tmp_path.glob("results/*/logs/attempt_0/rank_*.log"))
    assert [log.read_text() for log in logs] == ["settings 42\n"] * 4

    (project / "torchrun.py").write_text("import os, helper\nprint('at', os.environ['RANK'], helper.value())\n")
    launched = trireme_command("launch", "-n", "3", *arguments(apart, tmp_path), "torchrun.py")
    assert launched.returncode == 0, launched.stdout + launched.stderr
    for rank in range(3):
        assert f"at {rank} 42" in launched.stdout


def test_working_dir_and_py_modules_are_sent(apart: namespaces.Nodes, project: Path, tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "single.py").write_text("NAME = 'single'\n")

    def train() -> tuple[str, int, str]:
        import helper  # type: ignore[import-not-found]
        import single  # type: ignore[import-not-found]

        return Path("settings.txt").read_text(), helper.value(), single.NAME

    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=3, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            worker_runtime_env={"working_dir": str(project), "py_modules": [str(modules / "single.py")]}
        ),
    )
    assert trainer.fit().return_value == ("settings", 42, "single")


def test_a_cpp_program_is_sent(apart: namespaces.Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trireme.shutdown()
    name, options = engine(apart, tmp_path)
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    monkeypatch.setenv("TRIREME_ENGINE", name)
    monkeypatch.setenv("TRIREME_ENGINE_OPTIONS", json.dumps(options))
    program = tmp_path / "quickstart"  # the nodes do not see it
    shutil.copy(cpp_programs.EXAMPLES / "example_quickstart", program)
    cpp_programs.checked(program)
    (folder,) = Path(os.environ["TRIREME_RESULTS"]).iterdir()
    assert {event["host"] for event in events(folder, "worker_connected")} == set(apart.hosts)
