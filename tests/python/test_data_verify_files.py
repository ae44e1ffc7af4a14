"""`trireme data verify` against files of a run's sample log that were deleted, cut short, swapped or replaced."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
sys.path.append(str(Path(__file__).resolve().parents[1]))

from chaos import runner as chaos
from chaos.scenario import Fault, Scenario

import trireme
import trireme.data
from runs import events, trireme_command
from trireme import Checkpoint, DataConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

DATASETS = ("train", "valid", "unused")
TRIALS = 40


def read_two_datasets() -> None:
    """Two epochs of both, and rank 1 is killed in the middle of the first. "unused" is not requested."""
    context = trireme.get_context()
    train, valid = trireme.get_dataset_shard("train"), trireme.get_dataset_shard("valid")
    while train.epoch < 2:
        for step, _ in enumerate(train.iter_batches(global_batch_size=20)):
            trireme.report({}, checkpoint=Checkpoint.from_dict({"step": step}))
            if context._attempt == 0 and step == 2:
                trireme.get_all_reported_checkpoints()
                trireme.collective.barrier()
                if context.get_world_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                trireme.collective.barrier()
        for _ in valid.iter_batches(batch_size=10):
            pass


@pytest.fixture(scope="module")
def two_datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two_datasets")
    result = DataParallelTrainer(
        read_two_datasets,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="run", storage_path=str(folder), failure_config=FailureConfig(max_failures=1)),
        datasets={name: trireme.data.range(100, override_num_blocks=4) for name in DATASETS},
        dataset_config=DataConfig(log_samples=True, datasets_to_split=["train", "unused"]),
    ).fit()
    assert len(events(result.path, "attempt_started")) == 2
    return Path(result.path)


@pytest.fixture(scope="module")
def cpp_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ program of the chaos suite, with one restart."""
    if not chaos.PROGRAM.exists():
        pytest.skip(f"{chaos.PROGRAM} is not built: run `make build` first")
    scenario = Scenario("verify", "cpp", "data", faults=[Fault("kill", "step", True, 1, 5)])
    place = chaos.Place(tmp_path_factory.mktemp("cpp") / "verify", scenario, threading.Event(), loaded=False)
    place.make()
    assert place.run_to_the_end().restarts == 1
    return place.run


Attack = Callable[[list[Path], random.Random], bool]  # False: it would change nothing that must be found


def delete_a_file(files: list[Path], draw: random.Random) -> bool:
    draw.choice(files).unlink()
    return True


def delete_a_dataset(files: list[Path], draw: random.Random) -> bool:
    dataset = draw.choice(files).name.split(".")[0]
    for path in files:
        if path.name.startswith(f"{dataset}."):
            path.unlink()
    return True


def delete_the_folder(files: list[Path], draw: random.Random) -> bool:
    shutil.rmtree(files[0].parent)
    return True


def cut_a_file(files: list[Path], draw: random.Random) -> bool:
    path = draw.choice(files)
    # At any byte, or after a complete line. The newline at the end of a file may be missing.
    size = draw.randrange(path.stat().st_size - 1)
    text = path.read_bytes()[:size]
    path.write_bytes(text if draw.random() < 0.5 else text[: text.rfind(b"\n") + 1])
    return True


def swap_two_files(files: list[Path], draw: random.Random) -> bool:
    first, second = draw.sample(files, 2)
    texts = first.read_bytes(), second.read_bytes()
    second.write_bytes(texts[0])
    first.write_bytes(texts[1])
    return texts[0] != texts[1]


def copy_over_another(files: list[Path], draw: random.Random) -> bool:
    source, target = draw.sample(files, 2)
    same = source.read_bytes() == target.read_bytes()
    shutil.copyfile(source, target)
    return not same


def write_twice(files: list[Path], draw: random.Random) -> bool:
    path = draw.choice([path for path in files if path.suffix == ".jsonl"])
    path.write_bytes(path.read_bytes() * 2)
    return True


ATTACKS: list[Attack] = [
    delete_a_file,
    delete_a_dataset,
    delete_the_folder,
    cut_a_file,
    cut_a_file,
    swap_two_files,
    copy_over_another,
    write_twice,
]


@pytest.mark.parametrize("run", ["two_datasets", "cpp_run"])
def test_damage_to_the_files_of_a_log_is_found(run: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    original: Path = request.getfixturevalue(run)
    whole = trireme_command("data", "verify", str(original))
    assert whole.returncode == 0 and "WRONG" not in whole.stdout, whole.stdout + whole.stderr
    draw = random.Random(run)
    copy = tmp_path / "copy"
    found = 0
    for trial in range(TRIALS):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        attack = ATTACKS[trial % len(ATTACKS)]
        if not attack(sorted((copy / "data").iterdir()), draw):
            continue
        told = trireme_command("data", "verify", str(copy))
        assert told.returncode == 1, (attack.__name__, trial, told.stdout, told.stderr)
        found += 1
    assert found > TRIALS / 2


def test_a_run_without_its_event_log_is_not_verified(two_datasets: Path, tmp_path: Path) -> None:
    """Nothing would show that logs are missing."""
    copy = tmp_path / "copy"
    shutil.copytree(two_datasets, copy)
    (copy / "events.jsonl").unlink()
    refused = trireme_command("data", "verify", str(copy))
    assert refused.returncode == 1
    assert "has no event log" in refused.stderr


def test_missing_logs_are_named(two_datasets: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(two_datasets, copy)
    for path in (copy / "data").glob("unused.*"):
        path.unlink()
    (copy / "data" / "valid.1.jsonl").unlink()
    told = trireme_command("data", "verify", str(copy), "--json")
    assert told.returncode == 1
    wrong: dict[str, Any] = {each["dataset"]: each["problem"] for each in json.loads(told.stdout) if each["problem"]}
    assert wrong["unused"] == "rank 0 finished attempt 1, but it has no log: lines are missing"
    assert wrong["valid"] == "rank 1 finished attempt 1, but it has no log: lines are missing"
    assert "train" not in wrong
