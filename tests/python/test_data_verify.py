"""`trireme data verify` against runs that lose, repeat or reorder rows, and against logs that were tampered with."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import trireme
import trireme.data
from runs import CapacityFollowsSize, events, trireme_command
from trireme import (
    Checkpoint,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
)

ROWS = 1000


def fit(function: Any, data: Any = None, workers: Any = 2, **options: Any) -> Result:
    failures = FailureConfig(max_failures=options.pop("max_failures", 3))
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(
            num_workers=workers, trainer_resources={"CPU": 0}, elastic_resize_monitor_interval_s=0.1
        ),
        run_config=RunConfig(name="run", failure_config=failures, **options),
        datasets={"train": data if data is not None else trireme.data.range(ROWS, override_num_blocks=7)},
        dataset_config=DataConfig(log_samples=True),
    ).fit()


def verify(path: Any) -> tuple[int, list[dict[str, Any]]]:
    told = trireme_command("data", "verify", str(path), "--json")
    return told.returncode, json.loads(told.stdout) if told.stdout else []


def problems(path: Any) -> str:
    code, verdicts = verify(path)
    found = " / ".join(each["problem"] for each in verdicts if each["problem"])
    assert bool(found) == (code == 1)
    return found


def rows_of(result: Result) -> list[int]:
    """Of epoch 0, in all attempts that reported them."""
    return [row for event in events(result.path, "report") for row in event["metrics"].get("rows", [])]


def die_once(step: int) -> None:
    """The last rank, when all ranks have reached the fifth step and their reports are committed."""
    context = trireme.get_context()
    if context._attempt == 0 and step == 4:
        trireme.get_all_reported_checkpoints()
        trireme.collective.barrier()
        if context.get_world_rank() == context.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        trireme.collective.barrier()


def taking(**batches: Any) -> Callable[[], None]:
    """A training function that reads an epoch, reports every batch, and is killed once in the middle."""

    def train() -> None:
        attempt = trireme.get_context()._attempt
        shard = trireme.get_dataset_shard("train")
        options = {name: value(attempt) if callable(value) else value for name, value in batches.items()}
        for step, batch in enumerate(shard.iter_batches(**options)):
            trireme.report({"rows": batch["id"].tolist()}, checkpoint=Checkpoint.from_dict({"step": step}))
            die_once(step)

    return train


@pytest.mark.parametrize(
    "changes",
    [
        {"local_shuffle_seed": lambda attempt: attempt},
        {"local_shuffle_buffer_size": lambda attempt: 500 - 400 * attempt},
        {"local_shuffle_seed": lambda attempt: attempt, "local_shuffle_buffer_size": lambda attempt: 300 + attempt},
    ],
)
def test_an_epoch_keeps_the_local_shuffle_that_it_was_begun_with(changes: dict[str, Any]) -> None:
    options = {"global_batch_size": 50, "local_shuffle_buffer_size": 300, "local_shuffle_seed": 0, **changes}
    result = fit(taking(**options))
    assert sorted(rows_of(result)) == list(range(ROWS))
    code, verdicts = verify(result.path)
    assert code == 0
    assert [(each["seen"], each["attempts"], each["end"]) for each in verdicts] == [(ROWS, 2, "over")]
    assert len(events(result.path, "attempt_started")) == 2


def test_other_shuffles_after_a_restart() -> None:
    """A run whose dataset has a different shuffle when it is resumed: the current epoch keeps its order."""

    def fails() -> None:
        shard = trireme.get_dataset_shard("train")
        for step, batch in enumerate(shard.iter_batches(global_batch_size=50)):
            trireme.report({"rows": batch["id"].tolist()}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 4:
                trireme.get_all_reported_checkpoints()
                raise ValueError("enough")

    data = trireme.data.range(ROWS, override_num_blocks=7)
    with pytest.raises(trireme.TrainingFailedError):
        fit(fails, data, max_failures=0)
    result = fit(taking(global_batch_size=50), data.random_shuffle(seed=7), workers=3)
    assert sorted(rows_of(result)) == list(range(ROWS))
    assert problems(result.path) == ""
    assert [each["seen"] for each in verify(result.path)[1]] == [ROWS]


def moved(**changes: Any) -> Callable[[], None]:
    """A training function that moves to another position in the middle of an epoch, on some ranks."""

    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        shard = trireme.get_dataset_shard("train")
        options = dict(changes.get("options", {"global_batch_size": 50}))
        for step, _ in enumerate(shard.iter_batches(**options)):
            if step == 4:
                break
        if rank in changes.get("ranks", (0, 1)):
            state = shard.state() | {"rows": 250 + changes.get("by", 0)} | changes.get("state", {})
            shard.load_state(state)
        for _ in shard.iter_batches(**(options | changes.get("then", {}))):
            pass

    return train


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (moved(), ""),
        (moved(by=50), "resumed at row 300, but row 250 was next"),
        (moved(by=-50), "resumed at row 200, but row 250 was next"),
        (moved(by=50, ranks=(1,)), "rank 0 began at"),
        (moved(ranks=()), ""),  # all ranks exit the loop
        (moved(ranks=(0,)), "rank 0 began at"),
        (
            moved(state={"seed": 5}, options={"global_batch_size": 50, "local_shuffle_buffer_size": 400}),
            "in a different order",
        ),
        (moved(state={"virtual_shards": 3}), "in a different order"),
        (moved(state={"window_rows": 200}), "in a different order"),
        (moved(state={"shuffle_fragments": True}), "in a different order"),
        (moved(then={"global_batch_size": 25}), ""),  # a different batch size divides the same order
        (moved(state={"epoch": 3, "rows": 0}), "at row 0 of epoch 3 after row 250 of epoch 0"),
    ],
)
def test_functions_that_move_their_position(function: Any, problem: str) -> None:
    found = problems(fit(function).path)
    assert problem in found and bool(problem) == bool(found)


def test_ranks_that_do_not_take_the_same() -> None:
    def uneven(config: dict[str, Any]) -> None:
        rank = trireme.get_context().get_world_rank()
        shard = trireme.get_dataset_shard("train")
        if config["what"] == "no part" and rank == 1:
            return
        size = 100 if config["what"] == "batches" and rank == 1 else 50
        seed = rank if config["what"] == "orders" else 0
        for step, _ in enumerate(
            shard.iter_batches(global_batch_size=size, local_shuffle_buffer_size=100, local_shuffle_seed=seed)
        ):
            if config["what"] == "early" and rank == 1 and step == 18:
                return

    for what, problem in (
        ("nothing", ""),
        ("early", "rank 1 stopped at row 950 and rank 0 at row 1000"),
        ("no part", "rank 1 did not take part"),
        ("batches", "split the epoch differently: batches of 50 and 100 rows"),
        ("orders", "rank 0 has a different order"),
    ):
        result = DataParallelTrainer(
            uneven,
            train_loop_config={"what": what},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name=what.replace(" ", "_")),
            datasets={"train": trireme.data.range(ROWS)},
            dataset_config=DataConfig(log_samples=True),
        ).fit()
        found = problems(result.path)
        assert problem in found and bool(problem) == bool(found), what


def test_ranks_that_report_different_numbers_of_times_per_step() -> None:
    """The position of a checkpoint is wrong for one of them: the run says so, and the rows are found to be lost."""

    def uneven() -> None:
        context, shard = trireme.get_context(), trireme.get_dataset_shard("train")
        for step, _ in enumerate(shard.iter_batches(global_batch_size=50)):
            # Rank 1 reports twice per step, so that its third report is made in the second step.
            if context.get_world_rank() == 1:
                trireme.report({})
                trireme.report({})
            else:
                trireme.report({}, checkpoint=Checkpoint.from_dict({"step": step}))
            if context._attempt == 0 and step == (3 if context.get_world_rank() == 0 else 1):
                trireme.get_all_reported_checkpoints()
                trireme.collective.barrier()
                raise ValueError("enough")

    result = fit(uneven, max_failures=1)
    warnings = [event["message"] for event in events(result.path, "warning") if "when they made" in event["message"]]
    assert len(warnings) == 1
    assert re.search(r"rank \d was at row \d+ of epoch 0 of dataset 'train' and rank \d at row", warnings[0])
    assert "resumed at row 200, but row 100 was next" in problems(result.path)


def test_previews_during_training_do_not_change_the_position() -> None:
    def train() -> None:
        import cloudpickle

        shard = trireme.get_dataset_shard("train")
        for step, _ in enumerate(shard.iter_batches(global_batch_size=100)):
            if step == 3:
                assert shard.materialize().count() == ROWS / 2
                copy = cloudpickle.loads(cloudpickle.dumps(shard))
                assert sum(len(batch["id"]) for batch in copy.iter_batches(batch_size=50)) == ROWS / 2

    result = fit(train)
    assert problems(result.path) == ""
    assert [each["seen"] for each in verify(result.path)[1]] == [ROWS]


def test_epochs_that_are_left_or_cut_short() -> None:
    def train() -> None:
        shard = trireme.get_dataset_shard("train")
        for step, _ in enumerate(shard.iter_batches(global_batch_size=60)):
            if step == 2:
                break
        for _ in shard.iter_batches(global_batch_size=60, drop_last=True):
            pass
        for _ in shard.iter_batches(global_batch_size=60, pad_last=True):
            pass

    result = fit(train)
    code, verdicts = verify(result.path)
    assert code == 0
    assert [(each["seen"], each["end"]) for each in verdicts] == [(180, "left"), (960, "over"), (ROWS, "over")]
    told = trireme_command("data", "verify", str(result.path)).stdout.splitlines()
    assert "rows 0 to 180 once; then the loop exited" in told[1]
    assert "rows 0 to 960 once; the other 40 dropped by drop_last or equal" in told[2]
    assert "every row once" in told[3]


def test_a_run_that_begins_with_a_checkpoint_of_another() -> None:
    def first() -> None:
        for step, _ in enumerate(trireme.get_dataset_shard("train").iter_batches(global_batch_size=50)):
            if step == 4:
                trireme.report({}, checkpoint=Checkpoint.from_dict({}))
                return

    checkpoint = fit(first).checkpoint

    def then() -> None:
        for _ in trireme.get_dataset_shard("train").iter_batches(global_batch_size=50):
            pass

    result = DataParallelTrainer(
        then,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="then"),
        datasets={"train": trireme.data.range(ROWS, override_num_blocks=7)},
        dataset_config=DataConfig(log_samples=True),
        resume_from_checkpoint=checkpoint,
    ).fit()
    code, verdicts = verify(result.path)
    assert code == 0 and [(each["first"], each["seen"]) for each in verdicts] == [(250, ROWS)]
    assert "rows 250 to 1000 once; the run started there, from a checkpoint" in (
        trireme_command("data", "verify", str(result.path)).stdout
    )


def elastic_run(declared: Any) -> Result:
    """Resizes, and two datasets, one of which every rank reads completely."""
    declared(num_cpus=2)
    resizes = CapacityFollowsSize({2: 4, 4: 3, 3: 3})

    def train() -> None:
        context = trireme.get_context()
        shard, valid = trireme.get_dataset_shard("train"), trireme.get_dataset_shard("valid")
        last = False
        while not last:
            last = context.get_world_size() == 3
            for _ in shard.iter_batches(global_batch_size=100):
                trireme.report({}, checkpoint=Checkpoint.from_dict({}))
            for _ in valid.iter_batches(batch_size=40):
                pass

    return DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(
            num_workers=(2, 4), trainer_resources={"CPU": 0}, elastic_resize_monitor_interval_s=0.1
        ),
        run_config=RunConfig(name="elastic", callbacks=[resizes]),
        datasets={
            "train": trireme.data.range(ROWS, override_num_blocks=7).random_shuffle(seed=1),
            "valid": trireme.data.range(100),
        },
        dataset_config=DataConfig(log_samples=True, datasets_to_split=["train"]),
    ).fit()


Lines = dict[str, list[dict[str, Any]]]


class Logs:
    """The digest logs of a dataset, to be tampered with."""

    def __init__(self, run: Path, dataset: str) -> None:
        self.run = run
        self.files: Lines = {
            path.name: [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted((run / "data").glob(f"{dataset}.*.jsonl"))
        }
        self._starts: dict[int, tuple[int, int]] = {}
        self._places: dict[int, tuple[int, int]] = {}
        for lines in self.files.values():
            passes: dict[tuple[int, int], int] = {}
            for line in lines:
                if line["kind"] == "pass":
                    passes[line["attempt"], line["pass"]] = line["epoch"]
                if line["kind"] == "finished":
                    place = line["epoch"], line["row"]
                else:
                    place = passes[line["attempt"], line["pass"]], line.get("begin", line.get("at"))
                self._places[id(line)] = place
                if line["kind"] in ("pass", "finished"):
                    self._starts[line["attempt"]] = min(self._starts.get(line["attempt"], place), place)

    def done_again(self, line: dict[str, Any]) -> bool:
        """Whether a later attempt repeats it. A worker that is killed may lack such lines."""
        return any(
            attempt > line["attempt"] and self._places[id(line)] >= start for attempt, start in self._starts.items()
        )

    def write(self, run: Path) -> None:
        for name, lines in self.files.items():
            (run / "data" / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def attacked(logs: Logs, kind: str, draw: random.Random) -> bool:
    """False if it would change nothing relevant."""
    name = draw.choice(list(logs.files))
    lines = logs.files[name]
    at = draw.randrange(len(lines))
    line = lines[at]
    is_last = all(later["attempt"] != line["attempt"] for later in lines[at + 1 :])
    if kind == "drop":
        if is_last and logs.done_again(line):
            return False
        del lines[at]
    elif kind == "duplicate":
        lines.insert(draw.randrange(at, len(lines)) + 1, dict(line))
    elif kind == "reorder":
        other = draw.randrange(len(lines))
        if at == other or lines[other]["attempt"] != line["attempt"]:
            return False
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "swap ranks":
        others = logs.files[draw.choice(list(logs.files))]
        index = draw.randrange(len(others))
        if others is lines or others[index] == line:
            return False
        lines[at], others[index] = others[index], line
    elif kind == "truncate":
        if all(logs.done_again(each) for each in lines[at:]):
            return False
        del lines[at:]
    elif kind == "shift":
        keys = [key for key in ("begin", "end", "at") if key in line]
        if not keys or (line["kind"] == "pass" and is_last and logs.done_again(line)):
            return False
        by = draw.choice([-50, -1, 1, 50, 100])
        line.update({key: line[key] + by for key in keys})
    elif line["kind"] == "rows":
        line[kind] ^= 1 << draw.randrange(8)
    else:
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_tampering_with_the_logs_of_a_run_is_found(seed: int, tmp_path: Path, declared: Any) -> None:
    if seed == 0:
        run = Path(elastic_run(declared).path)
    else:
        data = trireme.data.range(ROWS, override_num_blocks=7)
        run = Path(fit(taking(global_batch_size=50), data.random_shuffle(seed=seed), workers=1 + seed).path)
    assert problems(run) == ""
    draw = random.Random(seed)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    tried = 0
    for kind in ("drop", "duplicate", "reorder", "swap ranks", "truncate", "shift", "rows", "digest"):
        for _ in range(6):
            logs = Logs(run, "train")
            if not attacked(logs, kind, draw):
                continue
            logs.write(copy)
            told = trireme_command("data", "verify", str(copy))
            assert told.returncode == 1, (kind, told.stdout)
            tried += 1
    assert tried > 24
    # A complete attempt, or all lines of a rank.
    for attempt in range(len(events(run, "attempt_started"))):
        logs = Logs(run, "train")
        counted = any(
            line["attempt"] == attempt and line["kind"] == "rows" and not logs.done_again(line)
            for lines in logs.files.values()
            for line in lines
        )
        logs.files = {
            name: [line for line in lines if line["attempt"] != attempt] for name, lines in logs.files.items()
        }
        logs.write(copy)
        found = problems(copy)
        assert bool(found) or not counted
    Logs(run, "train").write(copy)
    assert problems(copy) == ""
    (copy / "data" / "train.0.jsonl").unlink()
    assert problems(copy)
