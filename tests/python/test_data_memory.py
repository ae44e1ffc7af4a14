from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

import trireme.data  # noqa: E402
from trireme import ConfigError  # noqa: E402
from trireme.data import DataError  # noqa: E402
from trireme.data._memory import RangeSource, TableSource  # noqa: E402
from trireme.data._shared_table import SharedTable  # noqa: E402

_COUNT = """
import sys, cloudpickle, pyarrow
fragments = cloudpickle.loads(sys.stdin.buffer.read())
print([reader.read_all().num_rows for reader, _ in (fragment.open() for fragment in fragments)])
print(pyarrow.total_allocated_bytes())
"""


def in_another_process(code: str, value: Any) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code], input=cloudpickle.dumps(value), capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode().splitlines()


def test_range() -> None:
    assert trireme.data.range(5).to_arrow().to_pydict() == {"id": [0, 1, 2, 3, 4]}
    assert trireme.data.range(0).count() == 0
    large = trireme.data.range(3_000_000)
    assert large.to_arrow().column("id").to_numpy().tolist() == list(range(3_000_000))
    assert trireme.data.range(10, override_num_blocks=4).num_blocks() == 4
    assert trireme.data.range(10, parallelism=5).num_blocks() == 5


def test_range_tensor() -> None:
    table = trireme.data.range_tensor(3, shape=(2, 2)).to_arrow()
    expected = np.broadcast_to(np.arange(3).reshape(3, 1, 1), (3, 2, 2))
    np.testing.assert_array_equal(table.column("data").combine_chunks().to_numpy_ndarray(), expected)


@pytest.mark.parametrize("source", [RangeSource(1000, None, 3), TableSource(pa.table({"id": range(1000)}), "t", 3)])
def test_fragments_can_be_opened_in_their_middle(source: Any) -> None:
    fragments = source.fragments()
    assert [fragment.rows for fragment in fragments] == [333, 333, 334]
    reader, first = fragments[1].open(row=100)
    assert first == 100
    assert reader.read_all().column("id").to_pylist() == list(range(433, 666))
    nothing, _ = fragments[0].open(columns=[])
    assert sum(batch.num_rows for batch in nothing) == 333


def test_items() -> None:
    assert trireme.data.from_items([3, 1]).take_all() == [{"item": 3}, {"item": 1}]
    rows = trireme.data.from_items([{"a": 1, "v": np.ones(2)}, {"a": 2, "v": np.zeros(2)}])
    assert rows.schema().field("v").type == pa.fixed_shape_tensor(pa.float64(), (2,))
    assert trireme.data.from_items([{"a": 1}, {"b": 2}]).take_all() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert trireme.data.from_items(list(range(10)), override_num_blocks=5).num_blocks() == 5
    assert trireme.data.from_items([]).count() == 0


def test_numpy() -> None:
    first, second = np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)
    table = trireme.data.from_numpy([first, second]).to_arrow()
    values = table.column("data").combine_chunks().to_numpy_ndarray()
    np.testing.assert_array_equal(values, np.concatenate([first, second]))
    assert trireme.data.from_numpy(np.arange(4)).to_arrow().to_pydict() == {"data": [0, 1, 2, 3]}


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "n": [1.5, None],
            "s": ["a", None],
            "c": pandas.Categorical(["x", "y"]),
            "t": pandas.to_datetime(["2020-01-01", None]),
            "v": [np.ones(2), np.zeros(2)],
        },
        index=[7, 3],
    )
    dataset = trireme.data.from_pandas(frame)
    assert dataset.columns() == ["n", "s", "c", "t", "v"]
    assert dataset.schema().field("v").type == pa.fixed_shape_tensor(pa.float64(), (2,))
    expected = pa.Table.from_pandas(frame.drop(columns="v"), preserve_index=False)
    got = dataset.to_arrow().drop_columns("v")
    for name in ("n", "s", "c", "t"):
        assert got.column(name).to_pylist() == expected.column(name).to_pylist()

    assert trireme.data.from_arrow(frame[["n"]]).columns() == ["n"]
    named = trireme.data.from_pandas([frame[["n"]].rename_axis("key")] * 2)
    assert named.to_arrow().column("key").to_pylist() == [7, 3, 7, 3]


def test_anything_that_speaks_arrow() -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    frame = polars.DataFrame({"a": [1, 2], "s": ["x", None], "l": [["u"], ["v", "w"]]})
    dataset = trireme.data.from_arrow([frame, frame])
    assert dataset.to_arrow().to_pylist() == frame.to_dicts() * 2
    assert dataset.schema().field("s").type == pa.string()
    query = duckdb.sql("select range as n, 'x' as s from range(10)")
    assert trireme.data.from_arrow(query).to_arrow().column("n").to_pylist() == list(range(10))
    assert trireme.data.from_arrow(pa.record_batch({"a": [1]})).count() == 1


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: trireme.data.range(-1), ConfigError, r"range\(n\) = -1"),
        (lambda: trireme.data.range(2.5), ConfigError, r"range\(n\) = 2.5"),  # type: ignore[arg-type]
        (lambda: trireme.data.range_tensor(1, shape=(-1,)), ConfigError, r"range_tensor\(shape\) = -1"),
        (lambda: trireme.data.range(1, override_num_blocks=0), ConfigError, "override_num_blocks = 0"),
        (lambda: trireme.data.from_items([1, {}]), DataError, "item 1 is dict and item 0 is int"),
        (lambda: trireme.data.from_items([{"a": object()}]), DataError, "column 'a': row 0 .* cannot hold"),
        (lambda: trireme.data.from_arrow(3), ConfigError, "__arrow_c_stream__, got int"),
        (lambda: trireme.data.from_arrow([]), ConfigError, "the list is empty"),
        (lambda: trireme.data.from_pandas([1]), ConfigError, "expected a pandas.DataFrame, got int"),
        (
            lambda: trireme.data.from_arrow([pa.table({"a": [1]}), pa.table({"a": ["x"]})]),
            DataError,
            "column 'a' is int64 in number 0 and string in number 1",
        ),
        (
            lambda: trireme.data.from_arrow(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"])),
            DataError,
            "2 columns named 'a'",
        ),
    ],
)
def test_values_that_are_not_datasets_are_rejected(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_a_large_table_is_shared_not_copied() -> None:
    table = pa.table({"x": np.arange(1_000_000)})
    fragments = TableSource(table, "from_arrow", 2).fragments()
    assert len(cloudpickle.dumps(fragments)) < 1000
    counts, allocated = in_another_process(_COUNT, fragments)
    assert counts == "[500000, 500000]"
    assert int(allocated) < 100_000


def test_a_small_table_travels_with_the_pickle() -> None:
    pickled = cloudpickle.dumps(TableSource(pa.table({"x": [1, 2]}), "from_arrow").fragments())
    assert b"/proc" not in pickled
    assert cloudpickle.loads(pickled)[0].open()[0].read_all().to_pydict() == {"x": [1, 2]}


def test_shared_memory_is_gone_with_its_owner() -> None:
    before = set(Path("/dev/shm").iterdir())
    shared = SharedTable.put(pa.table({"x": np.arange(1000)}))
    column, pickled = shared.table.column("x"), cloudpickle.dumps(shared)
    assert cloudpickle.loads(pickled).table.column("x").to_pylist() == list(range(1000))
    assert not set(Path("/dev/shm").iterdir()) - before
    del shared
    # Data that was read from it stays valid, and no other process can open it.
    assert column[999].as_py() == 999
    with pytest.raises(DataError, match="the table in memory of process"):
        cloudpickle.loads(pickled)


def test_a_descriptor_that_is_something_else_by_now(tmp_path: Path) -> None:
    shared = SharedTable.put(pa.table({"x": [1]}))
    pickled = cloudpickle.dumps(shared)
    number = shared._file
    del shared
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    os.dup2(other, number)
    try:
        with pytest.raises(DataError, match="no longer exists: its dataset was deleted"):
            cloudpickle.loads(pickled)
    finally:
        for file in {other, number}:
            os.close(file)


@pytest.mark.torch
def test_torch_datasets_are_read_by_index() -> None:
    torch = pytest.importorskip("torch")
    read: list[int] = []

    class Squares(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 3000

        def __getitem__(self, index: int) -> tuple[Any, int]:
            read.append(index)
            return torch.full((2, 2), index), index * index

    dataset = trireme.data.from_torch(Squares())
    assert max(read, default=0) < 100
    table = dataset.to_arrow()
    assert table.column("item_1").to_pylist() == [index * index for index in range(3000)]
    assert table.column("item_0").combine_chunks().to_numpy_ndarray().shape == (3000, 2, 2)

    fragment = dataset.plan().fragments  # several, and each can be opened at any row
    assert len(fragment) > 1
    read.clear()
    reader, first = trireme.data._foreign.ItemSource(Squares(), "t").fragments()[0].open(row=1000)
    assert (first, reader.read_all().num_rows, min(read[8:])) == (1000, 24, 1000)

    class Endless(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(ConfigError, match="Endless has no index"):
        trireme.data.from_torch(Endless())

    class Broken(Squares):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            if index == 1500:
                raise OSError("no such image")
            return super().__getitem__(index)

    with pytest.raises(DataError, match="item 1500 raised OSError: no such image"):
        trireme.data.from_torch(Broken()).to_arrow()


@pytest.mark.slow
def test_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features({"a": datasets.Value("int32"), "m": datasets.Array2D((2, 2), "float32")})
    made = datasets.Dataset.from_dict({"a": list(range(100)), "m": [np.eye(2)] * 100}, features=features)
    made.save_to_disk(tmp_path / "saved")
    stored = datasets.load_from_disk(tmp_path / "saved")
    for source in (made, stored):
        chosen = source.shuffle(seed=3).select(range(40))
        table = trireme.data.from_huggingface(chosen).to_arrow()
        assert table.column("a").to_pylist() == list(chosen["a"])
        np.testing.assert_array_equal(table.column("m").combine_chunks().to_numpy_ndarray(), [np.eye(2)] * 40)
    fragments = trireme.data._foreign.MappedSource(stored, 3).fragments()
    assert in_another_process(_COUNT, fragments)[0] == "[34, 34, 32]"

    with pytest.raises(ConfigError, match=r"IterableDataset.*without streaming"):
        trireme.data.from_huggingface(made.to_iterable_dataset())
    with pytest.raises(ConfigError, match=r"all splits .train.*dataset..train"):
        trireme.data.from_huggingface(datasets.DatasetDict({"train": made}))


@pytest.mark.slow
def test_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    made = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0], "y": [[1, 2], [3, 4]]})
    assert trireme.data.from_tf(made).to_arrow().column("x").to_pylist() == [1.0, 2.0]
    with pytest.raises(ConfigError, match="is infinite"):
        trireme.data.from_tf(made.repeat())
    with pytest.raises(ConfigError, match="length of the dataset is unknown"):
        trireme.data.from_tf(made.filter(lambda row: True))


def test_a_slice_does_not_store_the_complete_column() -> None:
    whole = pa.table({"x": np.arange(10_000_000)})
    assert len(cloudpickle.dumps(TableSource(whole.slice(5, 10), "from_arrow"))) < 5000


def test_a_table_in_many_small_pieces_is_read_in_large_ones() -> None:
    pieces = pa.Table.from_batches([pa.record_batch({"x": [number]}) for number in range(5000)])
    batches = list(TableSource(pieces, "from_arrow", num_fragments=1).fragments()[0].open()[0])
    assert len(batches) == 1 and batches[0].column("x").to_pylist() == list(range(5000))


def test_items_without_an_end_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got count, which has no length and may be infinite: pass list"):
        trireme.data.from_items(itertools.count())
