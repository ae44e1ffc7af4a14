"""trireme::data in C++ programs: rows compared to pyarrow's, shards, and positions that survive a kill."""

from __future__ import annotations

import collections
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpp_programs import BUILD, EXAMPLES, checked, result_of, run
from s3_server import Bucket

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

PROGRAM = BUILD / "tests/data_program"
EXAMPLE = EXAMPLES / "example_data_parquet"
TORCH_EXAMPLE = EXAMPLES / "example_data_torch"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")
needs_arrow = pytest.mark.skipif(not EXAMPLE.exists(), reason="trireme::data is not built")


def steps_of(name: str) -> dict[tuple[int, int], list[int]]:
    """The rows of every step, by epoch and step, of the last attempt that reached the step."""
    taken: dict[tuple[int, int], dict[int, list[int]]] = {}
    for report in result_of(name).metrics_history():
        metrics = report["metrics"]
        taken.setdefault((metrics["epoch"], metrics["step"]), {})[report["rank"]] = metrics["ids"]
    return {at: sorted(id for ids in by_rank.values() for id in ids) for at, by_rank in taken.items()}


def verify(name: str) -> list[dict[str, Any]]:
    cli = os.environ.get("TRIREME_CLI", BUILD / "src/cli/trireme")
    done = subprocess.run(
        [cli, "data", "verify", "--json", Path(os.environ["TRIREME_RESULTS"]) / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_kill_in_the_middle_of_an_epoch_changes_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_RESULTS", str(tmp_path / "undisturbed"))
    assert "attempts 1\n" in checked(PROGRAM, "fit", 0)
    undisturbed = steps_of("data")
    epochs: dict[int, list[int]] = collections.defaultdict(list)
    for (epoch, _), ids in undisturbed.items():
        epochs[epoch] += ids
    assert {epoch: sorted(ids) for epoch, ids in epochs.items()} == {0: list(range(103)), 1: list(range(103))}
    assert epochs[0] != epochs[1]

    monkeypatch.setenv("TRIREME_RESULTS", str(tmp_path / "killed"))
    assert "attempts 2\n" in checked(PROGRAM, "fit", 8)
    assert steps_of("data") == undisturbed
    verdicts = verify("data")
    assert [(each["epoch"], each["seen"], each["problem"]) for each in verdicts] == [(0, 103, None), (1, 103, None)]
    assert verdicts[0]["attempts"] == 2

    # The same run resumed with more workers.
    monkeypatch.setenv("TRIREME_RESULTS", str(tmp_path / "resized"))
    assert run(PROGRAM, "fit", "8,3").returncode == 1
    checked(PROGRAM, "fit", "0,4")
    assert steps_of("data") == undisturbed
    assert [(each["seen"], each["problem"]) for each in verify("data")] == [(103, None), (103, None)]

    checkpoint = result_of("data").checkpoint
    assert checkpoint is not None
    manifest = json.loads((Path(checkpoint.path) / ".trireme_manifest.json").read_text())
    place = manifest["positions"]["data/train"]
    assert {key: place[key] for key in ("epoch", "rows", "seed", "size")} == {
        "epoch": 1,
        "rows": 96,
        "seed": 5,
        "size": 103,
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_split_and_whole_datasets(workers: int) -> None:
    said = checked(PROGRAM, "look", workers)
    assert "no dataset named 'tran'; did you mean 'train'? (datasets: train, valid)\n" in said
    if workers == 0:
        return
    reports = {each["rank"]: each["metrics"] for each in result_of("look").metrics_history()}
    assert sorted(reports[0]["mine"] + reports[1]["mine"]) == [id * 0.5 for id in range(11)]
    for metrics in reports.values():
        assert metrics["sum"] == 45, "each rank reads all of a dataset that is not split"
        state = metrics["train"]["state"]
        assert (state["epoch"], state["rows"], state["size"]) == (1, 0, 11)
        assert metrics["valid"]["given"] == 10
        assert metrics["valid"]["batches"] == 4


def test_who_waits_for_data_can_be_called_back() -> None:
    assert "attempts 2\n" in checked(PROGRAM, "interrupted", "x")
    events = [json.loads(line) for line in (Path(os.environ["TRIREME_RESULTS"]) / "interrupted/events.jsonl").open()]
    kept = [event["rank"] for event in events if event["event"] == "worker_kept"]
    assert kept == [0], "the waiting worker was not killed"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("small", "the dataset 'train': it has 2 rows for 3 workers: each needs at least one row"),
        ("empty", "the dataset 'train': it has no rows"),
        ("name", "DataConfig.datasets_to_split: no dataset named 'tran'; did you mean 'train'?"),
        ("throws", "the dataset 'train': range(10) from 0: filter(): row 7: no sevens"),
    ],
)
def test_bad_datasets_are_refused_before_anything_starts(what: str, message: str) -> None:
    done = run(PROGRAM, "refused", what)
    assert done.returncode == 3
    assert message in done.stdout
    assert not (Path(os.environ["TRIREME_RESULTS"]) / "refused").exists()


def test_a_worker_with_a_different_dataset_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_TEST_DRIVER", "1")
    done = run(PROGRAM, "refused", "differs")
    assert done.returncode == 3
    assert "the dataset 'train': this worker created a different dataset than the driver" in done.stdout


def table() -> Any:
    return pa.table(
        {
            "id": range(100),
            "x": [i / 3 if i % 7 else None for i in range(100)],
            "name": [f"n{i}" for i in range(100)],
            "l": [[i] * (i % 3) for i in range(100)],
            "b": [i % 2 == 0 for i in range(100)],
            "d": pa.array(["a", "b"] * 50).dictionary_encode(),
            "s": [{"q": i, "w": "z"} for i in range(100)],
        }
    )


def read(path: Path | str) -> tuple[str, list[Any]]:
    """The program's summary of the files, and its rows."""
    head, _, rows = checked(PROGRAM, "read", path).partition("--\n")
    return head, [json.loads(line) for line in rows.splitlines()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "p").mkdir()
    pq.write_table(table().slice(0, 60), folder / "p/a.parquet", row_group_size=25)
    pq.write_table(table().slice(60), folder / "p/b.parquet")
    (folder / "p/_SUCCESS").write_text("")
    for year in (2023, 2024):
        (folder / f"hive/year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year, year + 1]}), folder / f"hive/year={year}/x.parquet")
    yield folder


@needs_arrow
@pytest.mark.slow
def test_memory_stays_below_the_budget_also_with_large_row_groups(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    table = pa.table({f"c{i}": numbers.random(650_000, dtype="float32") for i in range(10)})
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(table, folder / "0.parquet", compression="none")
    for part in range(1, 26):
        os.link(folder / "0.parquet", folder / f"{part}.parquet")
    checked(PROGRAM, "memory", folder)
    found = result_of("memory").metrics or {}
    assert found["rows"] == 26 * 650_000
    assert found["grown_kb"] < 72_000  # the budget; on a busy machine, the allocators keep up to an eighth more


@needs_arrow
def test_parquet_rows_are_those_that_pyarrow_wrote(files: Path) -> None:
    head, rows = read(files / "p")
    assert head.startswith("rows 100 fragments 4\n")
    assert rows == table().to_pylist()
    assert read(files / "p/*.parquet")[1] == rows
    assert read(files / "hive")[1] == [{"id": year + i, "year": year} for year in (2023, 2024) for i in range(2)]


@needs_arrow
def test_a_shuffle_is_the_same_in_both_languages(files: Path) -> None:
    data = pytest.importorskip("trireme.data")
    shuffled = data.read_parquet(str(files / "p")).random_shuffle(seed=7)
    expected = [row["id"] for row in shuffled.iter_rows()]
    assert expected != list(range(100))
    assert [int(line) for line in checked(PROGRAM, "order", files / "p").splitlines()] == expected


@needs_arrow
def test_text_formats(tmp_path: Path) -> None:
    import pyarrow.csv as pc

    flat = table().select(["id", "x", "name"])
    pc.write_csv(flat, tmp_path / "t.csv")
    assert read(tmp_path / "t.csv")[1] == flat.to_pylist()
    objects = [{"id": i, "a": [i] * i} for i in range(5)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(each) + "\n" for each in objects))
    assert read(tmp_path / "t.jsonl")[1] == objects
    with gzip.open(tmp_path / "t.txt.gz", "wt", newline="") as file:
        file.write("one\n\ntwo\r\nthree")
    assert read(tmp_path / "t.txt.gz")[1] == [{"text": word} for word in ("one", "two", "three")]
    (tmp_path / "z.bin").write_bytes(b"\0\1")
    assert read(tmp_path / "z.bin")[1] == [{"bytes": "2 bytes", "path": str(tmp_path / "z.bin")}]
    data = pytest.importorskip("trireme.data")
    files = tmp_path / "many.bin"
    files.mkdir()
    for index in range(70):
        (files / f"{index:02}").write_bytes(bytes(index))
    about, rows = read(files)
    assert [row["bytes"] for row in rows] == [f"{size} byte{'s' * (size != 1)}" for size in range(70)]
    assert f"fragments {data.read_binary_files(files).num_blocks()}" in about


@needs_arrow
def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "mixed/a.parquet")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "mixed/b.parquet")
    (tmp_path / "corrupt").mkdir()
    (tmp_path / "corrupt/a.parquet").write_bytes(b"PAR1 and nothing else")
    for path, message in {
        "mixed": f"column 'id' is int64 in {tmp_path}/mixed/a.parquet and string in {tmp_path}/mixed/b.parquet",
        "corrupt": f"{tmp_path}/corrupt/a.parquet",
        "nothing": f"no such file or folder: {tmp_path}/nothing",
        "none/*.parquet": f"no file matches {tmp_path}/none/*.parquet",
    }.items():
        done = run(PROGRAM, "read", tmp_path / path)
        assert done.returncode == 1
        assert message in done.stdout

    pq.write_table(pa.table({"id": [1]}), tmp_path / "corrupt/b.parquet")
    done = run(PROGRAM, "skip", tmp_path / "corrupt")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"id": 1}]
    assert f"1 of 2 files cannot be read and are skipped: {tmp_path}/corrupt/a.parquet" in done.stderr


@needs_arrow
def test_files_in_a_store_elsewhere(files: Path, bucket: Bucket) -> None:
    options = f"?region=us-east-1&endpoint_override=127.0.0.1:{bucket.door.port}&scheme=http"
    from pyarrow.fs import FileSystem

    store, root = FileSystem.from_uri(bucket.uri("p") + options)
    for name in ("a.parquet", "b.parquet"):
        with store.open_output_stream(f"{root}/{name}") as out:
            out.write((files / "p" / name).read_bytes())
    assert read(bucket.uri("p") + options)[1] == table().to_pylist()
    assert read(bucket.uri("p/b*.parquet") + options)[1] == table().slice(60).to_pylist()
    done = run(PROGRAM, "read", bucket.uri("nothing") + options)
    assert done.returncode == 1
    assert "no such file or folder: s3://" in done.stdout


@needs_arrow
def test_files_that_change_while_they_are_read_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": range(10, 20)}), tmp_path / "b.parquet")
    done = run(PROGRAM, "vanish", tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/b.parquet" in done.stdout


@needs_arrow
def test_workers_share_out_the_rows_of_files(files: Path) -> None:
    checked(PROGRAM, "train_on", files / "p")
    taken = {each["rank"]: each["metrics"]["ids"] for each in result_of("train_on").metrics_history()}
    assert sorted(taken[0] + taken[1]) == list(range(100))
    assert abs(len(taken[0]) - len(taken[1])) <= 1


@needs_arrow
def test_what_a_program_writes_is_read_by_pyarrow(tmp_path: Path) -> None:
    import pyarrow.csv as pc

    said = checked(PROGRAM, "write", tmp_path)
    expected: list[dict[str, Any]] = [
        {"id": i, "x": [float(i), i / 2], "name": f"n{i}" if i % 3 else None} for i in range(1000)
    ]
    written = pq.read_table(tmp_path / "parquet")
    assert written.to_pylist() == expected
    assert written.schema.field("x").type == pa.list_(pa.float32(), 2)
    assert pc.read_csv(next((tmp_path / "csv").iterdir())).column("id").to_pylist() == list(range(1000))
    chosen = [row for row in reversed(expected) if row["id"] % 7 == 0]
    assert pq.read_table(tmp_path / "sorted").to_pylist() == chosen
    grouped = {row["key"]: (row["sum(id)"], row["n"]) for row in pq.read_table(tmp_path / "grouped").to_pylist()}
    assert grouped == {key: (sum(range(key, 100, 3)), len(range(key, 100, 3))) for key in range(3)}
    assert pq.read_table(tmp_path / "whole").to_pylist() == [{"max(id)": 99, "mean(id)": 49.5, "count()": 100}]
    assert pq.read_table(tmp_path / "counted").to_pylist() == [
        {"key": key, "rows": len(range(key, 100, 3)), "count()": len(range(key, 100, 3))} for key in range(3)
    ]
    assert "'sum' needs a column" in said
    names = {0: "zero", 2: "two"}
    assert pq.read_table(tmp_path / "joined").to_pylist() == [
        {"key": i % 3, "id": i, "name": names.get(i % 3)} for i in range(100)
    ]


@needs_arrow
def test_the_example_of_groups() -> None:
    assert checked(EXAMPLES / "example_data_group_by").splitlines() == [
        "label 0: 334 rows, x is 49.95 on average, at most 99.9",
        "label 1: 333 rows, x is 49.9 on average, at most 99.7",
        "label 2: 333 rows, x is 50 on average, at most 99.8",
        "1000 rows, the sum of x is 49950",
        "334 rows have a label that is not rare",
    ]


@needs_arrow
def test_the_example_ends_with_the_same_weights_after_a_kill(tmp_path: Path) -> None:
    undisturbed = checked(EXAMPLE, tmp_path / "points").splitlines()[-1]
    assert undisturbed.endswith("after 1 attempt")
    (Path(os.environ["TRIREME_RESULTS"]) / "data_parquet").rename(tmp_path / "first")
    said = checked(EXAMPLE, tmp_path / "points", "--kill")
    assert "resuming after step 50, in epoch 1" in said
    assert said.splitlines()[-1].replace("2 attempts", "1 attempt") == undisturbed
    assert [each["seen"] for each in verify("data_parquet")] == [4000, 4000, 4000]


@pytest.mark.torch
@pytest.mark.skipif(not TORCH_EXAMPLE.exists(), reason="trireme::torch or trireme::data is not built")
def test_batches_as_tensors_of_libtorch(tmp_path: Path) -> None:
    points = [[i / 1000, 1 - i / 500] for i in range(1000)]
    columns = {
        "x": pa.array(points, pa.list_(pa.float32(), 2)),
        "y": pa.array([a * b for a, b in points], pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "points.parquet", row_group_size=100)
    undisturbed = checked(TORCH_EXAMPLE, tmp_path / "points.parquet")
    said = checked(TORCH_EXAMPLE, tmp_path / "points.parquet", "--kill")
    assert "resuming after step 20" in said
    assert said.splitlines()[-1].replace("2 attempts", "1 attempt") == undisturbed.splitlines()[-1]
