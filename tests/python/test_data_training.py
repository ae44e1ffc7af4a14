"""Datasets in trainers: divided among workers, with a position in checkpoints, in an order that neither kills nor
resizes change."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trireme
import trireme.data
from runs import CapacityFollowsSize, events, trireme_command
from trireme import (
    Checkpoint,
    CheckpointConsistencyMode,
    ConfigError,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)

ROWS = 1003


def fit(function: Any, datasets: Any, workers: Any = 2, config: Any = None, data: Any = None, **run: Any) -> Result:
    failure = FailureConfig(max_failures=run.pop("max_failures", 0))
    return DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(
            num_workers=workers, trainer_resources={"CPU": 0}, elastic_resize_monitor_interval_s=0.2
        ),
        run_config=RunConfig(**{"name": "run", **run}, failure_config=failure),
        datasets=datasets,
        dataset_config=data,
    ).fit()


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Five files of two row groups each; column x is the row number."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(5):
        x = np.arange(part * 200, ROWS if part == 4 else (part + 1) * 200)
        table = pa.table({"x": x, "y": np.sin(x).astype("float32"), "name": [f"row {i}" for i in x]})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=117)
    return str(folder)


def write(folder: str, rank: int, what: Any) -> None:
    with open(os.path.join(folder, f"seen-{rank}.jsonl"), "a") as file:
        file.write(json.dumps(what) + "\n")


def batches_of_run(folder: Path) -> dict[tuple[int, int], list[int]]:
    """By epoch and step: all ranks' rows, sorted, of the last attempt that reached the step."""
    last: dict[tuple[int, int], int] = {}
    found: dict[tuple[int, int, int], list[int]] = {}
    for file in folder.glob("seen-*.jsonl"):
        for line in file.read_text().splitlines():
            seen = json.loads(line)
            place = (seen["epoch"], seen["begin"])
            last[place] = max(last.get(place, 0), seen["attempt"])
            found.setdefault((*place, seen["attempt"]), []).extend(seen["rows"])
    return {place: sorted(found[(*place, attempt)]) for place, attempt in last.items()}


def train(config: dict[str, Any]) -> None:
    """Reads epochs, reports its rows, and runs the test's action at a step."""
    context = trireme.get_context()
    shard = trireme.get_dataset_shard("train")
    rank = context.get_world_rank()
    while shard.epoch < config["epochs"]:
        epoch, begin = shard.epoch, shard.state()["rows"] if shard.epoch == shard.state()["epoch"] else 0
        for step, batch in enumerate(shard.iter_batches(**config["batches"])):
            seen = {"epoch": epoch, "begin": begin, "rows": batch["x"].tolist(), "attempt": context._attempt}
            write(config["folder"], rank, seen)
            begin = shard.state()["rows"]
            state = {"epoch": epoch, "step": step, "size": context.get_world_size()}
            trireme.report(state, checkpoint=Checkpoint.from_dict(state) if step % 3 == 2 else None)
            trireme.collective.barrier()  # no checkpoint of this epoch waits for a slow rank
            kill = config.get("kill")
            if kill and [epoch, begin, rank, context._attempt] == kill:
                os.kill(os.getpid(), signal.SIGKILL)


class TestSplitting:
    def test_every_row_once_and_the_same_number_of_steps(self, files: str) -> None:
        def count(config: dict[str, Any]) -> dict[str, Any]:
            shard, valid = trireme.get_dataset_shard("train"), trireme.get_dataset_shard("valid")
            assert trireme.get_dataset_shard("train") is shard
            with pytest.raises(KeyError, match="no dataset 'test': the trainer was given 'train', 'valid'"):
                trireme.get_dataset_shard("test")
            rows = [batch["x"].tolist() for batch in shard.iter_batches(batch_size=100)]
            padded = [len(batch["x"]) for batch in shard.iter_batches(batch_size=100, pad_last=True)]
            dropped = [len(batch["x"]) for batch in shard.iter_batches(batch_size=100, drop_last=True)]
            seen = [row["x"] for row in valid.iter_rows()]
            trireme.report({"rows": rows, "padded": padded, "dropped": dropped, "valid": seen, "rate": shard.stats()})
            return {"epoch": shard.epoch, "schema": shard.schema().names}

        data = {"train": trireme.data.read_parquet(files), "valid": trireme.data.read_parquet(files).limit(250)}
        result = fit(count, data, workers=3, data=DataConfig(datasets_to_split=["train"]))
        reports = [event["metrics"] for event in events(result.path, "report")]
        assert len(reports) == 3
        assert sorted(x for report in reports for batch in report["rows"] for x in batch) == list(range(ROWS))
        assert {tuple(map(len, report["rows"])) for report in reports} <= {(100, 100, 100, 34), (100, 100, 100, 35)}
        assert all(report["padded"] == [100, 100, 100, 100] for report in reports)
        assert all(report["dropped"] == [100, 100, 100] for report in reports)
        assert all(report["valid"] == list(range(250)) for report in reports)
        assert "1003 rows" not in reports[0]["rate"] and "rows" in reports[0]["rate"]
        assert result.return_value == {"epoch": 3, "schema": ["x", "y", "name"]}
        rates = [event["data"] for event in events(result.path, "report")]
        assert all(rate["rows"] > 1000 and rate["bytes"] > 10000 and rate["wait_s"] >= 0 for rate in rates)

    def test_equal_leaves_out_what_does_not_divide(self, files: str) -> None:
        def count(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard()
            trireme.report({"rows": sum(len(batch["x"]) for batch in shard.iter_batches(batch_size=7))})

        result = fit(count, {"train": trireme.data.read_parquet(files)}, workers=2, data=DataConfig(equal=True))
        assert [event["metrics"]["rows"] for event in events(result.path, "report")] == [501, 501]

    def test_tables_and_factories_are_datasets_too(self) -> None:
        def count(config: dict[str, Any]) -> None:
            names = ("table", "factory")
            trireme.report({name: [row["x"] for row in trireme.get_dataset_shard(name).iter_rows()] for name in names})

        datasets = {
            "table": pa.table({"x": [1, 2, 3]}),
            "factory": lambda: trireme.data.from_items([{"x": 4}, {"x": 5}]),
        }
        result = fit(count, datasets, workers=1)
        assert result.metrics == {"table": [1, 2, 3], "factory": [4, 5]}

    def test_local_mode(self, files: str) -> None:
        def count(config: dict[str, Any]) -> int:
            shard = trireme.get_dataset_shard("train")
            return sum(len(batch["x"]) for batch in shard.iter_batches(batch_size=64))

        assert fit(count, {"train": trireme.data.read_parquet(files)}, workers=0).return_value == ROWS


class TestFailures:
    @pytest.mark.parametrize("shuffled", [False, True])
    def test_a_killed_worker_changes_no_batch(self, files: str, tmp_path: Path, shuffled: bool) -> None:
        data = trireme.data.read_parquet(files)
        data = data.random_shuffle(seed=5) if shuffled else data
        config = {"epochs": 2, "batches": {"batch_size": 40}, "folder": str(tmp_path / "calm")}
        os.mkdir(config["folder"])
        fit(train, {"train": data}, config=config, name="calm")
        calm = batches_of_run(Path(config["folder"]))
        assert sorted(row for (epoch, _), rows in calm.items() for row in rows if epoch == 0) == list(range(ROWS))

        config |= {"folder": str(tmp_path / "killed"), "kill": [1, 480, 1, 0]}
        os.mkdir(config["folder"])
        logged = DataConfig(log_samples=True)
        result = fit(train, {"train": data}, config=config, name="killed", max_failures=1, data=logged)
        assert batches_of_run(Path(config["folder"])) == calm
        verified = trireme_command("data", "verify", str(result.path), "--json")
        assert verified.returncode == 0, verified.stderr
        verdicts = json.loads(verified.stdout)
        assert [(each["epoch"], each["seen"], each["problem"]) for each in verdicts] == [
            (0, ROWS, None),
            (1, ROWS, None),
        ]
        assert verdicts[1]["attempts"] == 2
        assert "every row once" in trireme_command("data", "verify", str(result.path)).stdout

    def test_the_next_driver_resumes_in_the_middle_with_another_number_of_workers(
        self, files: str, tmp_path: Path
    ) -> None:
        def fails(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard("train")
            for step, batch in enumerate(shard.iter_batches(global_batch_size=60)):
                trireme.report({"rows": batch["x"].tolist()}, checkpoint=Checkpoint.from_dict({"step": step}))
                if step == 4:
                    trireme.get_all_reported_checkpoints()  # once they are committed
                    raise ValueError("enough")

        def goes_on(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard("train")
            assert shard.state()["rows"] == 300
            rows = [x for batch in shard.iter_batches(global_batch_size=60) for x in batch["x"].tolist()]
            trireme.report({"rows": rows})

        # Without a seed: the random seed is restored from the checkpoint.
        data = trireme.data.read_parquet(files).random_shuffle()
        with pytest.raises(TrainingFailedError, match="enough"):
            fit(fails, {"train": data}, workers=2)
        result = fit(goes_on, {"train": data}, workers=3)
        rows = [x for event in events(result.path, "report") for x in event["metrics"]["rows"]]
        assert sorted(rows) == list(range(ROWS))

    def test_a_dataset_that_an_attempt_does_not_ask_for_keeps_its_position(self, files: str) -> None:
        def train(config: dict[str, Any]) -> Any:
            attempt = trireme.get_context()._attempt
            checkpoint = Checkpoint.from_dict({"attempt": attempt})
            if attempt != 1:
                shard = trireme.get_dataset_shard("train")
                if attempt == 2:
                    return shard.epoch
                for _ in range(2):
                    for _ in shard.iter_batches(batch_size=500):
                        pass
            trireme.report({}, checkpoint=checkpoint)
            trireme.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
            os._exit(1)

        result = fit(train, {"train": trireme.data.read_parquet(files)}, workers=1, max_failures=2)
        assert result.return_value == 2

    def test_every_single_row_has_a_position(self, files: str) -> None:
        def takes(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard("train")
            rows = []
            for row in shard.iter_rows():
                rows.append(row["x"])
                if len(rows) == 7:
                    trireme.report({"rows": rows}, checkpoint=Checkpoint.from_dict({}))
                    if trireme.get_context()._attempt == 0:
                        trireme.get_all_reported_checkpoints()
                        raise ValueError("enough")
            trireme.report({"rows": rows})

        data = trireme.data.read_parquet(files).limit(50)
        result = fit(takes, {"train": data}, workers=2, max_failures=1)
        reports = events(result.path, "report")
        first = [x for event in reports if event["attempt"] == 0 for x in event["metrics"]["rows"]]
        last = [
            x for event in reports if event["attempt"] == 1 and event["index"] == 2 for x in event["metrics"]["rows"]
        ]
        assert len(first) == 14 and sorted(first + last) == list(range(50))

    def test_an_elastic_run_takes_every_row_once(self, files: str, tmp_path: Path, declared: Any) -> None:
        declared(num_cpus=2)
        resizes = CapacityFollowsSize({2: 4, 4: 3, 3: 3})

        def elastic(config: dict[str, Any]) -> None:
            context, shard = trireme.get_context(), trireme.get_dataset_shard("train")
            last = False
            while not last:  # to the end of the epoch in which the gang reaches its last size
                last = context.get_world_size() == 3
                for batch in shard.iter_batches(global_batch_size=100):
                    trireme.report({"rows": len(batch["x"])}, checkpoint=Checkpoint.from_dict({}))

        result = DataParallelTrainer(
            elastic,
            scaling_config=ScalingConfig(
                num_workers=(2, 4), trainer_resources={"CPU": 0}, elastic_resize_monitor_interval_s=0.1
            ),
            run_config=RunConfig(name="elastic", callbacks=[resizes]),
            datasets={"train": trireme.data.read_parquet(files).random_shuffle(seed=1)},
            dataset_config=DataConfig(log_samples=True),
        ).fit()
        assert resizes.sizes == [2, 4, 3]
        verified = trireme_command("data", "verify", str(result.path), "--json")
        assert verified.returncode == 0, verified.stderr + verified.stdout
        assert all(each["seen"] == ROWS for each in json.loads(verified.stdout))
        assert len(events(result.path, "attempt_started")) == 3

    def test_a_log_that_was_tampered_with_is_found_out(self, files: str, tmp_path: Path) -> None:
        config = {"epochs": 1, "batches": {"batch_size": 40}, "folder": str(tmp_path)}
        result = fit(
            train, {"train": trireme.data.read_parquet(files)}, config=config, data=DataConfig(log_samples=True)
        )
        log = Path(result.path, "data", "train.0.jsonl")
        lines = log.read_text().splitlines()
        log.write_text("\n".join([*lines[:2], lines[2].replace('"rows":40', '"rows":39'), *lines[3:]]) + "\n")
        refused = trireme_command("data", "verify", str(result.path))
        assert refused.returncode == 1
        assert "WRONG: rows 80 to 160: rank 0 consumed 39 of them, but its share is 40" in refused.stdout

    def test_without_a_log_there_is_nothing_to_verify(self, files: str, tmp_path: Path) -> None:
        config = {"epochs": 1, "batches": {"batch_size": 400}, "folder": str(tmp_path)}
        result = fit(train, {"train": trireme.data.read_parquet(files)}, config=config)
        refused = trireme_command("data", "verify", str(result.path))
        assert refused.returncode == 1 and "DataConfig.log_samples" in refused.stderr

    def test_a_file_that_disappears_between_epochs_is_named(self, files: str) -> None:
        def loses(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard("train")
            for _ in shard.iter_batches():
                pass
            os.remove(os.path.join(config["files"], "part-3.parquet"))
            for _ in shard.iter_batches():
                pass

        with pytest.raises(TrainingFailedError, match=r"DataError.*part-3\.parquet"):
            fit(loses, {"train": trireme.data.read_parquet(files)}, workers=1, config={"files": files})


class TestFunctions:
    def test_functions_run_in_separate_processes(self, files: str) -> None:
        def pid_of(batch: dict[str, Any]) -> dict[str, Any]:
            return {"x": batch["x"], "pid": np.full(len(batch["x"]), os.getpid())}

        def count(config: dict[str, Any]) -> None:
            shard = trireme.get_dataset_shard("train")
            rows, pids = [], set()
            for batch in shard.iter_batches(batch_size=100):
                rows += batch["x"].tolist()
                pids |= set(batch["pid"].tolist())
            trireme.report({"rows": rows, "here": os.getpid() in pids, "pids": len(pids)})

        data = trireme.data.read_parquet(files).filter(lambda row: row["x"] % 2 == 0).map_batches(pid_of)
        result = fit(count, {"train": data}, workers=2)
        reports = [event["metrics"] for event in events(result.path, "report")]
        assert sorted(x for report in reports for x in report["rows"]) == list(range(0, ROWS, 2))
        assert not any(report["here"] for report in reports)

    def test_a_row_that_a_function_fails_on_is_named(self, files: str) -> None:
        def fails(row: dict[str, Any]) -> dict[str, Any]:
            return {"z": 1 / (row["x"] - 777)}

        def count(config: dict[str, Any]) -> None:
            for _ in trireme.get_dataset_shard("train").iter_batches():
                pass

        data = trireme.data.read_parquet(files).map(fails)
        with pytest.raises(TrainingFailedError, match=r"row 60 of .*part-3\.parquet.*ZeroDivisionError"):
            fit(count, {"train": data}, workers=1)


class TestBadInput:
    def never(self, config: dict[str, Any]) -> None:
        raise AssertionError("a worker was started")

    @pytest.mark.parametrize(
        ("datasets", "data", "error", "text"),
        [
            ([1], None, TypeError, "datasets must be a dict"),
            ({"a/b": 1}, None, ValueError, "invalid name 'a/b'"),
            ({"train": 5}, None, TypeError, r"datasets\['train'\] must be a trireme.data.Dataset"),
            ({"train": pa.table({"x": [1]})}, None, ValueError, "has 1 row for 2 workers: each needs at least one row"),
            (
                {"train": pa.table({"x": pa.array([], pa.int64())})},
                None,
                ValueError,
                r"datasets\['train'\] \(.*\): it has no rows",
            ),
            (
                {"train": pa.table({"x": [1, 2]})},
                DataConfig(datasets_to_split=["valid"]),
                ConfigError,
                r"no dataset named 'valid' \(datasets: train\)",
            ),
        ],
    )
    def test_refused_before_anything_starts(self, datasets: Any, data: Any, error: Any, text: str) -> None:
        with pytest.raises(error, match=text):
            fit(self.never, datasets, data=data)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"memory_budget": "much"}, "memory_budget"),
            ({"memory_budget": "1kB"}, "at least 1MiB"),
            ({"memory_budget": -5}, "at least 1MiB"),
            ({"virtual_shards": 0}, "virtual_shards = 0"),
            ({"num_threads": 0}, "num_threads = 0"),
            ({"datasets_to_split": 3}, "datasets_to_split"),
        ],
    )
    def test_configuration(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            DataConfig(**options)

    def test_restore_wants_the_datasets_again(self, files: str, tmp_path: Path, results: Path) -> None:
        def fails(config: dict[str, Any]) -> None:
            raise ValueError("enough")

        data = {"train": trireme.data.read_parquet(files)}
        with pytest.raises(TrainingFailedError):
            fit(fails, data, name="again")
        with pytest.raises(ValueError, match=r"this run used datasets \(train\), .* pass them to restore"):
            DataParallelTrainer.restore(str(results / "again"))

    def test_a_window_larger_than_the_budget(self) -> None:
        def count(config: dict[str, Any]) -> None:
            next(iter(trireme.get_dataset_shard("train").iter_batches()))

        data = trireme.data.range_tensor(20_000, shape=(64,)).random_shuffle()
        with pytest.raises(TrainingFailedError, match=r"the memory budget is 1 MiB: raise DataConfig\.memory_budget"):
            fit(count, {"train": data}, workers=1, data=DataConfig(memory_budget="1MiB"))


def test_outside_of_a_training_function() -> None:
    with pytest.raises(RuntimeError, match="get_dataset_shard"):
        trireme.get_dataset_shard("train")


def test_files_that_a_killed_worker_left_half_written_are_removed(files: str, results: Path) -> None:
    def train() -> None:
        folder = Path(trireme.get_context().get_trial_dir()) / "data"
        next(iter(trireme.get_dataset_shard("train").iter_batches(batch_size=10)))
        # What a worker leaves that dies between creating the file and renaming it.
        (folder / ".trireme_tmp_0123456789abcdef").write_text("{")
        (folder / "notes.txt").write_text("the user's own file")

    data = DataConfig(log_samples=True)
    fit(train, {"train": trireme.data.read_parquet(files)}, workers=1, data=data)
    names = {path.name for path in (results / "run" / "data").iterdir()}
    assert "notes.txt" in names
    assert not [name for name in names if name.startswith(".trireme_tmp_")], names
