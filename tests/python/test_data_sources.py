"""Shared by all readers of files: the selection of files, their order, and errors."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

import trireme.data  # noqa: E402
from s3_server import Bucket  # noqa: E402
from trireme import ConfigError  # noqa: E402
from trireme.data import DataError  # noqa: E402
from trireme.data._file_source import Listing  # noqa: E402
from trireme.data._parquet import ParquetSource  # noqa: E402
from trireme.data._paths import select  # noqa: E402


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """b.txt, a.txt, c.txt.gz, deep/d.txt, and files that must be ignored."""
    root = tmp_path / "tree"
    (root / "deep" / ".git").mkdir(parents=True)
    (root / "_temporary").mkdir()
    for name in ("b.txt", "a.txt", "deep/d.txt", ".hidden.txt", "_SUCCESS", "_temporary/x.txt", "deep/.git/y.txt"):
        (root / name).write_text(f"{name}\n")
    with gzip.open(root / "c.txt.gz", "wt") as packed:
        packed.write("c.txt.gz\n")
    (root / "other.md").write_text("other.md\n")
    return root


def lines(paths: Any, **options: Any) -> list[str]:
    return trireme.data.read_text(paths, **options).to_arrow().column("text").to_pylist()


def test_folders_globs_lists_and_files(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = ["a.txt", "b.txt", "c.txt.gz", "deep/d.txt", "other.md"]
    assert lines(tree) == everything
    assert lines(f"file://{tree}") == everything
    assert lines(tree, file_extensions=["txt"]) == everything[:4]
    assert lines(tree / "*.txt") == ["a.txt", "b.txt"]
    assert lines(tree / "[bc].*") == ["b.txt", "c.txt.gz"]
    assert lines(tree / "**" / "*.txt") == ["a.txt", "b.txt", "deep/d.txt"]
    assert lines(tree / "d*", file_extensions=["txt"]) == ["deep/d.txt"]
    assert lines([tree / "deep", tree / "b.txt", str(tree / "a.txt")]) == ["deep/d.txt", "b.txt", "a.txt"]
    assert lines(tree / ".hidden.txt") == [".hidden.txt"]
    assert lines([tree / "a.txt", tree / "nothing"], ignore_missing_paths=True) == ["a.txt"]
    monkeypatch.chdir(tree)
    assert lines("deep") == ["deep/d.txt"]
    assert trireme.data.read_text("deep").input_files() == [str(tree / "deep" / "d.txt")]


def test_a_name_with_a_wildcard_in_it(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x\n")
    assert lines(tmp_path / "a[1].txt") == ["x"]


def test_filesystems_of_the_user(tree: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    assert lines(str(tree), filesystem=pa.fs.LocalFileSystem(), file_extensions=["md"]) == ["other.md"]
    assert lines("deep", filesystem=pa.fs.SubTreeFileSystem(str(tree), pa.fs.LocalFileSystem())) == ["deep/d.txt"]
    memory = fsspec.filesystem("memory")
    memory.pipe("/sources/x/a.txt", b"1\n2\n")
    try:
        assert lines("/sources/x", filesystem=memory) == ["1", "2"]
        assert lines("/sources/*/a.txt", filesystem=memory) == ["1", "2"]
    finally:
        memory.rm("/sources", recursive=True)


@pytest.mark.parametrize(
    ("path", "options", "kind", "message"),
    [
        ("nothing.txt", {}, DataError, "read_text: no such file or folder: .*nothing.txt"),
        ("*.csv", {}, DataError, r"read_text: no files match .*/\*.csv"),
        ("", {"file_extensions": ["csv"]}, DataError, r"no files ending in .csv; there are a.txt, b.txt"),
        ("deep/.git/nothing", {"ignore_missing_paths": True}, DataError, "read_text: no files remain of"),
        ("", {"partition_filter": lambda values: False}, DataError, "read_text: no files remain of"),
        ("", {"on_bad_file": "ignore"}, ConfigError, "on_bad_file = 'ignore': expected 'raise' or 'skip'"),
        ("", {"shuffle": "rows"}, ConfigError, "shuffle = 'rows': expected 'files'"),
        ("", {"partitioning": "dir"}, ConfigError, "partitioning = 'dir'"),
        ("", {"partition_filter": 1}, ConfigError, "partition_filter must be callable"),
        ("", {"encodings": "utf-8"}, ConfigError, r"read_text\(\) has no argument 'encodings'"),
        ("", {"encoding": "klingon"}, ConfigError, "encoding = 'klingon'"),
    ],
)
def test_nothing_to_read(tree: Path, path: str, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        trireme.data.read_text(str(tree / path), **options)


@pytest.mark.parametrize("paths", [[], "", None, [3]])
def test_values_that_are_not_paths_are_rejected(paths: Any) -> None:
    with pytest.raises(ConfigError, match="read_csv: "):
        trireme.data.read_csv(paths)


def test_keywords_of_ray_that_cannot_matter_pass(tree: Path) -> None:
    ignored = {"parallelism": 8, "concurrency": 2, "override_num_blocks": 3, "num_cpus": 1, "ray_remote_args": {}}
    assert trireme.data.read_text(tree / "a.txt", **ignored).count() == 1


def test_partitions_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for year, place in ((2020, "a b"), (2021, "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / "run=7" / "data" / f"year={year}" / f"place={place.replace(' ', '%20')}"
        folder.mkdir(parents=True)
        (folder / "x.csv").write_text("n\n1\n2\n")
    monkeypatch.chdir(tmp_path / "run=7")  # this folder is not part of the user's path
    dataset = trireme.data.read_csv("data", include_paths=True)
    table = dataset.to_arrow()
    assert table.column_names == ["n", "year", "place", "path"]
    assert table.column("year").to_pylist() == [2020, 2020, 2021, 2021]
    assert table.column("place").to_pylist() == ["a b", "a b", None, None]
    assert table.column("path").to_pylist()[0].endswith("/x.csv")
    assert trireme.data.read_csv("data", partitioning=None).columns() == ["n"]
    chosen = trireme.data.read_csv("data", partition_filter=lambda values: values["year"] == "2021")
    assert chosen.to_arrow().column("year").to_pylist() == [2021, 2021]
    by_folder = pa.dataset.partitioning(pa.schema([("kind", pa.string())]))
    (tmp_path / "plain" / "train").mkdir(parents=True)
    (tmp_path / "plain" / "train" / "x.csv").write_text("n\n1\n")
    directories = trireme.data.read_csv(tmp_path / "plain", partitioning=by_folder).to_arrow()
    assert directories.to_pylist() == [{"n": 1, "kind": "train"}]


def test_shuffled_files_keep_their_rows(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.txt").write_text(f"{number}\n")
    shuffled = trireme.data.read_text(tmp_path, shuffle=trireme.data.FileShuffleConfig(seed=1))
    got = [int(row["text"]) for row in shuffled.take_all()]
    assert got != list(range(20)) and sorted(got) == list(range(20))
    assert sorted(lines(tmp_path, shuffle="files")) == sorted(map(str, range(20)))


def test_shuffled_files_in_every_epoch(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.txt").write_text(f"{number}\n")

    def epochs(**config: Any) -> list[list[int]]:
        files = trireme.data.read_text(tmp_path, shuffle=trireme.data.FileShuffleConfig(**config))
        iterator = files.iterator()
        return [[int(x) for batch in iterator.iter_batches() for x in batch["text"]] for _ in range(3)]

    new = epochs(seed=1)
    assert new[0] != new[1] != new[2] and all(sorted(each) == list(range(20)) for each in new)
    fixed = epochs(seed=1, reseed_after_execution=False)
    assert fixed[0] == fixed[1] == fixed[2] != list(range(20)) and sorted(fixed[0]) == list(range(20))
    assert epochs(seed=1, reseed_after_execution=False) == fixed
    assert epochs(seed=2, reseed_after_execution=False) != fixed
    drawn = epochs(reseed_after_execution=False)  # no effect without a seed
    assert drawn[0] != drawn[1]
    with pytest.raises(ConfigError, match="reseed_after_execution = 'no'"):
        trireme.data.FileShuffleConfig(seed=1, reseed_after_execution="no")  # type: ignore[arg-type]


def test_a_file_that_changes_or_goes(tmp_path: Path) -> None:
    for reader, name, content in (
        (trireme.data.read_text, "a.txt", b"1\n"),
        (trireme.data.read_binary_files, "a.bin", b"1"),
        (trireme.data.read_csv, "a.csv", b"n\n1\n"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        dataset = reader(path)
        assert dataset.count() == 1
        path.write_bytes(content * 2)
        with pytest.raises(DataError, match=f"{name} has changed since the dataset was created"):
            dataset.take_all()
        path.unlink()
        with pytest.raises(DataError, match=f"{name} was deleted since the dataset was created"):
            dataset.take_all()


def test_bad_files_are_skipped_on_request(tmp_path: Path) -> None:
    for number in range(6):
        pq.write_table(pa.table({"n": [number] * 10}), tmp_path / f"{number}.parquet")
    content = (tmp_path / "2.parquet").read_bytes()
    (tmp_path / "2.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "0.parquet").write_text("not parquet")
    with pytest.raises(DataError, match=r"0.parquet is not a readable Parquet file"):
        trireme.data.read_parquet(tmp_path).to_arrow()
    with pytest.warns(UserWarning, match=r"2 of 6 files cannot be read and are skipped: .*0.parquet, .*2.parquet"):
        table = trireme.data.read_parquet(tmp_path, on_bad_file="skip").to_arrow()
    assert table.column("n").to_pylist() == [number for number in (1, 3, 4, 5) for _ in range(10)]
    with pytest.warns(UserWarning) as told:
        dataset = trireme.data.read_parquet(tmp_path, on_bad_file="skip")
        assert [dataset.count(), dataset.select_columns(["n"]).count(), len(dataset.take_all())] == [40, 40, 40]
    assert len(told) == 1
    for path in tmp_path.iterdir():
        path.write_text("not parquet")
    with pytest.raises(DataError, match="cannot read any of 6 files"):
        trireme.data.read_parquet(tmp_path, on_bad_file="skip").to_arrow()


def test_fragments_and_sources_go_to_other_processes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(100)}), tmp_path / "a.parquet", row_group_size=30)
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    np.save(tmp_path / "a.npy", np.arange(5))
    datasets = [
        trireme.data.read_parquet(tmp_path / "a.parquet", include_paths=True),
        trireme.data.read_csv(tmp_path / "a.csv"),
        trireme.data.read_json(tmp_path / "a.jsonl"),
        trireme.data.read_text(tmp_path / "a.txt"),
        trireme.data.read_numpy(tmp_path / "a.npy"),
        trireme.data.read_binary_files(tmp_path / "a.txt"),
        trireme.data.range(7),
        trireme.data.from_items([1, 2]),
    ]
    script = """
import sys, cloudpickle
for dataset in cloudpickle.loads(sys.stdin.buffer.read()):
    print(dataset.to_arrow().num_rows)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], input=cloudpickle.dumps(datasets), capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
    assert [int(line) for line in run.stdout.split()] == [100, 2, 1, 3, 5, 1, 7, 2]


def test_remote_files(bucket: Bucket) -> None:
    files = bucket.filesystem
    files.create_dir(f"{bucket.name}/data/year=2020")
    with files.open_output_stream(f"{bucket.name}/data/year=2020/b.parquet") as stream:
        pq.write_table(pa.table({"n": [3, 4]}), stream)
    with files.open_output_stream(f"{bucket.name}/data/a.parquet") as stream:
        pq.write_table(pa.table({"n": [1, 2]}), stream)
    with files.open_output_stream(f"{bucket.name}/text/a.txt.gz", compression=None) as stream:
        stream.write(gzip.compress(b"1\n2\n"))

    dataset = trireme.data.read_parquet(bucket.uri("data"), include_paths=True)
    assert dataset.to_arrow().to_pydict() == {
        "n": [1, 2, 3, 4],
        "year": [None, None, 2020, 2020],
        "path": [bucket.uri("data/a.parquet")] * 2 + [bucket.uri("data/year=2020/b.parquet")] * 2,
    }
    assert dataset.input_files() == [bucket.uri("data/a.parquet"), bucket.uri("data/year=2020/b.parquet")]
    by_filesystem = trireme.data.read_parquet(f"{bucket.name}/data/*.parquet", filesystem=bucket.connect())
    assert by_filesystem.to_arrow().column("n").to_pylist() == [1, 2]
    assert lines(bucket.uri("text")) == ["1", "2"]
    assert trireme.data.read_binary_files(bucket.uri("text/*")).count() == 1
    with pytest.raises(DataError, match=f"no such file or folder: {bucket.uri('nothing')}"):
        trireme.data.read_parquet(bucket.uri("nothing"))

    fragment = ParquetSource(Listing(select("read_parquet", bucket.uri("data")), None, False)).fragments()[0]
    assert fragment.remote
    bucket.door.shut()
    try:
        with pytest.raises(OSError, match=r"(?i)connect|curl|http|network"):  # may be temporary
            fragment.open()[0].read_all()
    finally:
        bucket.door.open()
    assert fragment.open()[0].read_all().num_rows == 2
    files.delete_file(f"{bucket.name}/data/a.parquet")
    with pytest.raises(DataError, match=r"a.parquet was deleted since the dataset was created"):
        fragment.open()


def test_many_files_are_listed_in_order(tmp_path: Path) -> None:
    names = [f"{number % 7}/{number:03d}.txt" for number in range(200)]
    for name in names:
        os.makedirs(tmp_path / os.path.dirname(name), exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    assert lines(tmp_path) == sorted(names)
