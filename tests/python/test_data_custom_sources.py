"""Datasource and Datasink: sources and sinks that users write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trireme
import trireme.data
from processes import wait_until
from trireme import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig
from trireme.data import (
    BlockBasedFileDatasink,
    BlockMetadata,
    DataError,
    Datasink,
    Datasource,
    FileBasedDatasource,
    FilenameProvider,
    ReadTask,
    RowBasedFileDatasink,
)


class Squares(Datasource):
    """n * n for n in range(rows), in tasks of 25 rows and blocks of 10. known: the tasks know their number of rows."""

    def __init__(self, rows: int = 110, known: bool = True) -> None:
        self._rows = rows
        self._known = known

    def estimate_inmemory_data_size(self) -> int:
        return 16 * self._rows

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        def read(start: int, stop: int) -> Iterator[Any]:
            for begin in range(start, stop, 10):
                n = np.arange(begin, min(begin + 10, stop))
                yield {"n": n, "square": n * n}

        parts = [(start, min(start + 25, self._rows)) for start in range(0, self._rows, 25)]
        return [
            ReadTask(partial(read, start, stop), BlockMetadata(num_rows=stop - start if self._known else None))
            for start, stop in parts
        ]


@pytest.mark.parametrize("known", [True, False])
def test_rows_of_a_datasource(known: bool) -> None:
    dataset = trireme.data.read_datasource(Squares(known=known))
    n = np.arange(110)
    assert dataset.count() == 110
    assert dataset.num_blocks() == 5
    assert dataset.schema().names == ["n", "square"]
    expected = pd.DataFrame({"n": n, "square": n * n})
    pd.testing.assert_frame_equal(dataset.to_pandas(), expected)
    parts = dataset.select_columns(["square"]).split_at_indices([37, 61])
    assert [row["square"] for row in parts[1].take_all()] == (n * n)[37:61].tolist()


def test_blocks_of_every_kind() -> None:
    table = pa.table({"x": [1, 2], "s": ["a", None]})
    blocks = [
        table,
        table.to_batches()[0],
        table.to_pandas(),
        {"x": np.array([1, 2]), "s": ["a", None]},
        table.to_pylist(),
    ]

    class Blocks(Datasource):
        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
            return [ReadTask(lambda block=block: [block], BlockMetadata(), table.schema) for block in blocks]

    assert trireme.data.read_datasource(Blocks()).take_all() == table.to_pylist() * 5
    assert trireme.data.from_blocks(blocks).take_all() == table.to_pylist() * 5


def test_limits_of_a_task() -> None:
    class Limited(Squares):
        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
            tasks = super().get_read_tasks(parallelism)
            return [ReadTask(task.read_fn, task.metadata, None, 12) for task in tasks]

    rows = [row["n"] for row in trireme.data.read_datasource(Limited()).take_all()]
    assert rows == [start + i for start in (0, 25, 50, 75) for i in range(12)] + list(range(100, 110))


def test_errors_name_the_task() -> None:
    class Broken(Squares):
        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
            tasks = super().get_read_tasks(parallelism)

            def fail() -> Iterator[Any]:
                yield {"n": [1], "square": [1]}
                raise KeyError("no such key")

            tasks[3] = ReadTask(fail, BlockMetadata(num_rows=25))
            return tasks

    with pytest.raises(DataError, match=r"read_datasource\(Broken\), task 3 raised KeyError: 'no such key'"):
        trireme.data.read_datasource(Broken()).take_all()
    with pytest.raises(trireme.ConfigError, match="expected a Datasource, got int"):
        trireme.data.read_datasource(3)
    with pytest.raises(trireme.ConfigError, match="no argument 'rows'"):
        trireme.data.read_datasource(Squares(), rows=3)
    with pytest.raises(DataError, match="a block is int"):
        trireme.data.from_blocks([3])


def _train(config: dict[str, Any]) -> None:
    shard = trireme.get_dataset_shard("train")
    rank = trireme.get_context().get_world_rank()
    folder = Path(config["folder"])
    stored = trireme.get_checkpoint()
    seen: list[int] = [] if stored is None else stored.to_dict()["seen"]
    for step, batch in enumerate(shard.iter_batches(global_batch_size=10)):
        seen.extend(int(n) for n in batch["n"])
        checkpoint = Checkpoint.from_dict({"seen": seen}) if rank == 0 else None
        trireme.report({"step": step}, checkpoint=checkpoint)
        if config["fails"] and step == 4 and rank == 1 and not (folder / "failed").exists():
            (folder / "failed").touch()
            assert wait_until((folder / "runs" / "run" / "checkpoint_000002").exists)
            os._exit(1)
    (folder / f"{rank}.json").write_text(json.dumps(seen))


def test_a_run_resumes_in_the_middle_of_a_custom_source(tmp_path: Path) -> None:
    """Rank 0 sees the rows of an undisturbed run, in the same order."""
    seen = {}
    for name in ("undisturbed", "failing"):
        folder = tmp_path / name
        folder.mkdir()
        result = DataParallelTrainer(
            _train,
            train_loop_config={"folder": str(folder), "fails": name == "failing"},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name="run", storage_path=str(folder / "runs"), failure_config=FailureConfig(max_failures=1)
            ),
            datasets={"train": trireme.data.read_datasource(Squares(known=False)).random_shuffle(seed=5)},
        ).fit()
        assert result.error is None
        assert (folder / "failed").exists() == (name == "failing")
        seen[name] = json.loads((folder / "0.json").read_text())
    assert seen["failing"] == seen["undisturbed"]
    assert len(set(seen["failing"])) == 55


class Lines(FileBasedDatasource):
    _FILE_EXTENSIONS = ["lines"]  # noqa: RUF012

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        lines = f.read().decode().splitlines()
        for line in lines:
            yield pa.table({"length": [len(line)], "line": [line]})


def test_files_of_a_custom_format(tmp_path: Any) -> None:
    (tmp_path / "kind=a").mkdir()
    (tmp_path / "kind=a" / "1.lines").write_text("one\nthree\n")
    (tmp_path / "2.other").write_text("ignored")
    (tmp_path / "kind=b").mkdir()
    (tmp_path / "kind=b" / "3.lines").write_text("fifteen")
    dataset = trireme.data.read_datasource(Lines(str(tmp_path), include_paths=True))
    rows = dataset.take_all()
    assert [(row["length"], row["line"], row["kind"]) for row in rows] == [
        (3, "one", "a"),
        (5, "three", "a"),
        (7, "fifteen", "b"),
    ]
    assert rows[2]["path"].endswith("kind=b/3.lines")
    assert dataset.select_columns(["kind"]).count() == 3
    with pytest.raises(DataError, match=r"Lines.*no such file or folder"):
        trireme.data.read_datasource(Lines(str(tmp_path / "missing")))


class Collect(Datasink[int]):
    def __init__(self, rows: int | None = None, fail_at: int | None = None) -> None:
        self._rows = rows
        self._fail_at = fail_at
        self.calls: list[Any] = []

    def on_write_start(self, schema: Any = None) -> None:
        self.calls.append(("start", schema.names))

    def write(self, blocks: Any, ctx: Any) -> int:
        if ctx.task_idx == self._fail_at:
            raise OSError("disk full")
        rows = [row for block in blocks for row in block["id"].to_pylist()]
        self.calls.append(("write", ctx.task_idx, rows))
        return len(rows)

    def on_write_complete(self, write_result: Any) -> None:
        self.calls.append(("complete", write_result.num_rows, write_result.write_returns))

    def on_write_failed(self, error: Exception) -> None:
        self.calls.append(("failed", str(error)))

    @property
    def min_rows_per_write(self) -> int | None:
        return self._rows


def test_calls_of_a_datasink() -> None:
    sink = Collect(rows=4)
    trireme.data.range(10).write_datasink(sink)
    assert sink.calls == [
        ("start", ["id"]),
        ("write", 0, [0, 1, 2, 3]),
        ("write", 1, [4, 5, 6, 7]),
        ("write", 2, [8, 9]),
        ("complete", 10, [4, 4, 2]),
    ]
    empty = Collect()
    trireme.data.range(10).filter("id > 10").write_datasink(empty)
    assert empty.calls == [("start", ["id"]), ("write", 0, []), ("complete", 0, [0])]


def test_a_failing_datasink() -> None:
    sink = Collect(rows=4, fail_at=1)
    with pytest.raises(OSError, match="disk full"):
        trireme.data.range(10).write_datasink(sink)
    assert sink.calls[-1] == ("failed", "disk full")
    with pytest.raises(trireme.ConfigError, match="expected a Datasink, got str"):
        trireme.data.range(10).write_datasink("folder")


class Named(FilenameProvider):
    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str:
        return f"block{task_index}.csv"

    def get_filename_for_row(self, row: Any, write_uuid: str, task_index: int, block_index: int, row_index: int) -> str:
        return f"row{row['id']}.txt"


def test_sinks_that_write_files(tmp_path: Any) -> None:
    class CsvSink(BlockBasedFileDatasink):
        def write_block_to_file(self, block: Any, file: Any) -> None:
            block.to_pandas().to_csv(file, index=False)

    class TextSink(RowBasedFileDatasink):
        def write_row_to_file(self, row: dict[str, Any], file: Any) -> None:
            if row["id"] == 7:
                raise ValueError("seven")
            file.write(str(row["id"]).encode())

    blocks = tmp_path / "blocks"
    trireme.data.range(10).write_datasink(CsvSink(str(blocks), min_rows_per_file=6, filename_provider=Named()))
    assert pd.read_csv(blocks / "block0.csv")["id"].tolist() == [0, 1, 2, 3, 4, 5]
    assert pd.read_csv(blocks / "block1.csv")["id"].tolist() == [6, 7, 8, 9]
    rows = tmp_path / "rows"
    trireme.data.range(3).write_datasink(TextSink(str(rows), filename_provider=Named()))
    assert sorted((path.name, path.read_text()) for path in rows.iterdir()) == [
        ("row0.txt", "0"),
        ("row1.txt", "1"),
        ("row2.txt", "2"),
    ]
    numbered = tmp_path / "numbered"
    with pytest.raises(ValueError, match="seven"):
        trireme.data.range(10).write_datasink(TextSink(str(numbered), file_format="txt"))
    assert [path.read_text() for path in sorted(numbered.iterdir())] == [str(i) for i in range(7)]
    assert all(path.suffix == ".txt" for path in numbered.iterdir())
    with pytest.raises(FileExistsError, match="numbered has 7 files"):
        trireme.data.range(3).write_datasink(TextSink(str(numbered), mode=trireme.data.SaveMode.ERROR))
