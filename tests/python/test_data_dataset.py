"""Dataset: operations on rows and columns, splits, inspection, and files; pandas is the reference."""

import datetime
import json
import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme import data
from trireme.data import col, lit
from trireme.data._column_ops import UnknownColumn

ROWS = 100


def frame(rows=ROWS):
    generator = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "x": np.arange(rows),
            "y": generator.normal(size=rows),
            "k": [("a", "b", "c")[i % 3] for i in range(rows)],
            "n": [None if i % 5 == 0 else float(i) for i in range(rows)],
        }
    )


@pytest.fixture
def ds():
    return data.from_pandas(frame(), override_num_blocks=7)


def same(dataset, expected):
    """The rows and the columns of a DataFrame, in order."""
    found = dataset.to_pandas()
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), check_dtype=False)


def xs(dataset):
    return [row["x"] for row in dataset.take_all()]


# Functions


def test_map(ds):
    same(ds.map(lambda row: {"a": row["x"] * 2}), pd.DataFrame({"a": frame().x * 2}))

    class Plus:
        def __init__(self, much, *, more=0):
            self.much = much + more

        def __call__(self, row, times, last=0):
            return {"a": (row["x"] + self.much) * times + last}

    mapped = ds.map(
        Plus,
        fn_constructor_args=[10],
        fn_constructor_kwargs={"more": 1},
        fn_args=[2],
        fn_kwargs={"last": 5},
        num_cpus=1,
    )
    assert [row["a"] for row in mapped.take(2)] == [27, 29]
    assert "map(" in repr(mapped)


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "default"])
def test_map_batches(ds, batch_format):
    def plus(batch):
        if batch_format == "pyarrow":
            return pa.table({"a": pa.compute.add(batch["x"], 1)})
        if batch_format == "pandas":
            return pd.DataFrame({"a": batch["x"] + 1})
        return {"a": batch["x"] + 1}

    mapped = ds.map_batches(plus, batch_size=9, batch_format=batch_format)
    same(mapped, pd.DataFrame({"a": frame().x + 1}))
    assert mapped.count() == ROWS


def test_flat_map_filter_and_add_column(ds):
    twice = ds.flat_map(lambda row: [{"a": row["x"]}, {"a": -row["x"]}] if row["x"] % 2 else [])
    assert [row["a"] for row in twice.take(4)] == [1, -1, 3, -3]
    assert twice.count() == ROWS
    same(ds.filter(lambda row: row["k"] == "a"), frame()[frame().k == "a"])
    same(ds.add_column("s", lambda batch: batch["x"] + batch["y"]), frame().assign(s=frame().x + frame().y))
    with pytest.raises(TypeError, match=r"map\(\) has no argument 'fn_arg'"):
        ds.map(lambda row: row, fn_arg=1)


# Expressions


@pytest.mark.parametrize(
    ("text", "expression", "query"),
    [
        ("x > 3 and k == 'a'", (col("x") > 3) & (col("k") == "a"), "x > 3 and k == 'a'"),
        ("x <= 3 or not (k != 'b')", (col("x") <= 3) | (col("k") == "b"), "x <= 3 or k == 'b'"),
        ("10 < x <= 20", (col("x") > 10) & (col("x") <= 20), "10 < x <= 20"),
        ("k in ['a', 'c']", col("k").isin(["a", "c"]), "k in ['a', 'c']"),
        ("k not in ('a',)", ~col("k").isin(["a"]), "k not in ['a']"),
        ("n is None", col("n").is_null(), "n.isna()"),
        ("n is not None and n > 50", col("n").is_valid() & (col("n") > 50), "n > 50"),
        ("x % 7 == 2", None, "x % 7 == 2"),
        ("x // 10 == 4", None, "x // 10 == 4"),
        ("x / 8 > 1.5", None, "x / 8 > 1.5"),
        ("-x + 2 * x - 1 > 40", None, "-x + 2 * x - 1 > 40"),
        ("x ** 2 < 50", None, "x ** 2 < 50"),
        ("(x > 90) | ~(x > 5) & (k == 'a')", None, "(x > 90) | ~(x > 5) & (k == 'a')"),
        ("abs(y) > 1", None, "abs(y) > 1"),
        ("upper(k) == 'B' and length(k) == 1", None, "k == 'b'"),
        ("col('x') == 5", col("x") == lit(5), "x == 5"),
    ],
)
def test_filter_by_expression(ds, text, expression, query):
    expected = frame().query(query, engine="python")
    assert 0 < len(expected) < ROWS
    same(ds.filter(text), expected)
    same(ds.filter(expr=text), expected)
    if expression is not None:
        same(ds.filter(expr=expression), expected)
        same(ds.filter(expression), expected)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.real > 1",
        "x[0] == 1",
        "(lambda: 1)()",
        "x >",
        "x is 3",
        "x in k",
        "f'{x}'",
    ],
)
def test_text_is_parsed_and_never_run(ds, text):
    with pytest.raises(ValueError, match=r"expression|Write it"):
        ds.filter(text)


def test_expressions_that_do_not_fit_the_columns(ds):
    with pytest.raises(ValueError, match=r"q.*The columns are x: int64"):
        ds.filter("q > 1").count()
    with pytest.raises(ValueError, match="columns are x: int64"):
        ds.filter("k > 1").take()
    with pytest.raises(ValueError, match="a function or an expression"):
        ds.filter()
    with pytest.raises(TypeError, match="expression"):
        ds.with_column("a", 3)


def test_with_columns(ds):
    same(ds.with_column("a", col("x") * 2 + 1), frame().assign(a=frame().x * 2 + 1))
    same(ds.with_column("x", "x / 4"), frame().assign(x=frame().x / 4))
    both = ds.with_columns({"a": "y * 2", "b": col("k")})
    same(both, frame().assign(a=frame().y * 2, b=frame().k))
    assert both.schema().field("a").type == pa.float64()
    same(ds.with_column("one", lit(1)), frame().assign(one=1))


# Columns


def test_columns(ds):
    assert ds.columns() == ["x", "y", "k", "n"]
    same(ds.select_columns(["k", "x"]), frame()[["k", "x"]])
    same(ds.select_columns("y"), frame()[["y"]])
    same(ds.drop_columns(["y", "n"]), frame()[["x", "k"]])
    same(ds.rename_columns({"x": "a"}), frame().rename(columns={"x": "a"}))
    same(ds.rename_columns(["a", "b", "c", "d"]), frame().set_axis(["a", "b", "c", "d"], axis=1))
    same(ds.map(lambda row: {"a": 1, "b": row["x"]}).drop_columns("a"), pd.DataFrame({"b": frame().x}))


def test_columns_that_are_not_there(ds):
    wrong = [
        ds.select_columns(["x", "q"]),
        ds.drop_columns("q"),
        ds.rename_columns({"q": "r"}),
        ds.sort("q"),
        ds.groupby("q").count(),
    ]
    late = ds.map(lambda row: row).select_columns("q")
    for dataset in wrong:
        for method in (dataset.take_all, dataset.plan, dataset.count):
            with pytest.raises(UnknownColumn, match="no column named 'q'; the columns are x, y, k, n"):
                method()
    for method in (late.take_all, late.plan):  # count() does not run functions that keep rows
        with pytest.raises(UnknownColumn, match="no column named 'q'; the columns are x, y, k, n"):
            method()
    with pytest.raises(KeyError, match="no column named 'q'"):
        ds.sum("q")
    with pytest.raises(ValueError, match="3 names for 4 columns"):
        ds.rename_columns(["a", "b", "c"]).schema()
    with pytest.raises(ValueError, match="more than one column would be named 'y'"):
        ds.rename_columns({"x": "y"}).schema()
    with pytest.raises(ValueError, match="more than once"):
        ds.select_columns(["x", "x"])
    with pytest.raises(ValueError, match="expected column names"):
        ds.select_columns([])


# Rows


def test_limit_and_union(ds):
    same(ds.limit(13), frame().head(13))
    assert ds.limit(0).take_all() == []
    assert ds.limit(0).schema() == ds.schema()
    assert ds.limit(1000).count() == ds.limit(np.int64(1000)).count() == ROWS
    both = ds.limit(2).union(ds.filter("x > 97"), ds.limit(1))
    assert xs(both) == [0, 1, 98, 99, 0]
    other_order = data.from_items([{"n": 1.0, "k": "z", "x": 5, "y": 0.5}])
    assert ds.limit(1).union(other_order).take_all()[1] == {"x": 5, "y": 0.5, "k": "z", "n": 1.0}
    with pytest.raises(ValueError, match=r"limit\(-1\)"):
        ds.limit(-1)
    with pytest.raises(data.DataError, match="column 'x' is string in dataset 1 and int64 in the ones before"):
        ds.select_columns("x").union(data.from_items([{"x": "a"}])).count()
    assert ds.limit(1).union(ds.limit(1).drop_columns("y")).take_all()[1]["y"] is None
    with pytest.raises(TypeError, match="argument 1 is a list"):
        ds.union([ds])


def test_union_where_one_has_only_nulls():
    both = data.from_items([{"a": None}]).union(data.from_items([{"a": 3}]))
    assert both.schema().field("a").type == pa.int64()
    assert both.take_all() == [{"a": None}, {"a": 3}]
    assert both.plan().reads().open(0, 0)[0].read_all().schema == both.schema()


def test_random_sample(ds):
    big = data.range(20_000, override_num_blocks=9)
    sample = big.random_sample(0.25, seed=7)
    ids = [row["id"] for row in sample.take_all()]
    assert ids == sorted(set(ids))
    assert 4_500 < len(ids) < 5_500
    assert sample.count() == len(ids)
    assert [row["id"] for row in big.random_sample(0.25, seed=7).take_all()] == ids
    assert [row["id"] for row in big.random_sample(0.25, seed=8).take_all()] != ids
    without_seed = big.random_sample(0.5)
    assert without_seed.take_all() == without_seed.take_all()
    assert big.random_sample(0.0).count() == 0
    assert big.random_sample(1).count() == 20_000
    for fraction in (-0.1, 1.1, "half", True):
        with pytest.raises(ValueError, match=r"fraction.*from 0 to 1"):
            ds.random_sample(fraction)


def test_shuffles(ds):
    shuffled = ds.random_shuffle(seed=3)
    order = xs(shuffled)
    assert sorted(order) == list(range(ROWS)) and order != list(range(ROWS))
    assert xs(ds.random_shuffle(seed=3)) == order
    assert xs(ds.random_shuffle(seed=4)) != order
    assert xs(shuffled.limit(10)) == order[:10]
    assert [row["x"] for row in shuffled.take(5)] == order[:5]
    assert xs(shuffled.materialize()) == order
    left, right = shuffled.split_at_indices([40])
    assert xs(left) + xs(right) == order
    own = ds.random_shuffle()
    assert xs(own) == xs(own)
    assert shuffled.sum("x") == ds.sum("x")
    assert shuffled.count() == ROWS

    blocks = xs(ds.randomize_block_order(seed=1))
    assert sorted(blocks) == list(range(ROWS)) and blocks != list(range(ROWS))
    assert sum(b - a != 1 for a, b in pairwise(blocks)) <= 6
    for wrong in ({"seed": -1}, {"seed": "x"}, {"window_rows": 0}):
        with pytest.raises(ValueError, match=r"expected (an integer|a number of rows)"):
            ds.random_shuffle(**wrong)


def test_repartition(ds):
    assert ds.num_blocks() == 7
    assert ds.repartition(3).num_blocks() == 3
    assert xs(ds.repartition(3)) == list(range(ROWS))
    assert ds.repartition(target_num_rows_per_block=30).num_blocks() == 4
    assert sorted(xs(ds.repartition(3, shuffle=True))) == list(range(ROWS))
    assert xs(ds.repartition(3, shuffle=True)) != list(range(ROWS))
    assert xs(ds.repartition(2, keys=["k", "x"])) == list(frame().sort_values(["k", "x"]).x)
    assert xs(ds.map(lambda row: row).repartition(3).filter("x > 60").limit(4)) == [61, 62, 63, 64]
    for wrong in ({}, {"num_blocks": 2, "target_num_rows_per_block": 3}, {"num_blocks": 0}):
        with pytest.raises(ValueError, match="repartition"):
            ds.repartition(**wrong)


# Splits


def test_split(ds):
    parts = ds.split(3)
    assert [part.count() for part in parts] == [34, 33, 33]
    assert [x for part in parts for x in xs(part)] == list(range(ROWS))
    assert [part.count() for part in ds.split(3, equal=True)] == [33, 33, 33]
    for n in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="1 or more"):
            ds.split(n)
        with pytest.raises(ValueError, match="1 or more"):
            ds.streaming_split(n)


def test_split_proportionately(ds):
    assert [part.count() for part in ds.split_proportionately([0.2, 0.5])] == [20, 50, 30]
    assert [part.count() for part in ds.limit(3).split_proportionately([0.01, 0.01])] == [1, 1, 1]
    for shares in ([], [0.5, 0.5], [1.2], [0.0, 0.1], [-0.1]):
        with pytest.raises(ValueError, match="split_proportionately"):
            ds.split_proportionately(shares)
    with pytest.raises(ValueError, match="2 rows cannot fill 3 parts"):
        ds.limit(2).split_proportionately([0.4, 0.3])


@settings(max_examples=40, deadline=None)
@given(
    blocks=st.integers(1, 9),
    edges=st.lists(st.integers(0, 120), min_size=1, max_size=6).map(sorted),
    n=st.integers(1, 12),
    equal=st.booleans(),
)
def test_splits_are_slices(blocks, edges, n, equal):
    dataset = data.range(ROWS, override_num_blocks=blocks)
    numbers = list(range(ROWS))
    bounds = [0, *edges, ROWS]
    parts = dataset.split_at_indices(edges)
    assert [[row["id"] for row in part.take_all()] for part in parts] == [numbers[a:b] for a, b in pairwise(bounds)]
    counts = [part.count() for part in dataset.split(n, equal=equal)]
    assert len(counts) == n
    assert sum(counts) == (ROWS // n * n if equal else ROWS)
    assert max(counts) - min(counts) <= (0 if equal else 1)
    joined = parts[0].union(*parts[1:])
    assert [row["id"] for row in joined.take_all()] == numbers


def test_invalid_split_indices_are_rejected(ds):
    for indices, text in (
        ([], "empty"),
        ([5, 3], r"ascending order: \[3, 5\]"),
        ([-1], "-1 is not a row"),
        (["a"], "'a'"),
    ):
        with pytest.raises(ValueError, match=text):
            ds.split_at_indices(indices)


def test_train_test_split(ds):
    for size in (0.25, 25, np.int32(25)):
        train, test = ds.train_test_split(size)
        assert xs(train) == list(range(75)) and xs(test) == list(range(75, 100))
    train, test = ds.train_test_split(0.25, shuffle=True, seed=5)
    assert (train.count(), test.count()) == (75, 25)
    assert sorted(xs(train) + xs(test)) == list(range(ROWS))
    assert xs(train) != sorted(xs(train))
    again = ds.train_test_split(0.25, shuffle=True, seed=5)
    assert xs(again[1]) == xs(test) and xs(again[0]) == xs(train)
    assert sorted(xs(ds.train_test_split(10, shuffle=True, seed=6)[1])) != sorted(xs(test))[:10]
    assert train.map(lambda row: row).plan().rows == 75


def test_stratified_split(ds):
    expected = frame()
    train, test = ds.train_test_split(0.3, stratify="k")
    sizes = expected.groupby("k").size()
    assert test.to_pandas().groupby("k").size().to_dict() == (sizes * 0.3).astype(int).to_dict()
    assert sorted(xs(train) + xs(test)) == list(range(ROWS))
    last = {key: list(part.x)[-int(len(part) * 0.3) :] for key, part in expected.groupby("k")}
    assert xs(test) == sorted(x for part in last.values() for x in part)
    assert xs(train) == sorted(xs(train))
    planned = train.plan()
    assert planned.rows == train.count() == len(xs(train))
    assert sum(planned.reads().open(i, 0)[0].read_all().num_rows for i in range(len(planned.fragments))) == planned.rows


@pytest.mark.parametrize("size", [0.0, 1.0, 1.5, -0.2, 0, 100, -3])
def test_invalid_test_sizes_are_rejected(ds, size):
    with pytest.raises(ValueError, match=f"test_size = {size}"):
        ds.train_test_split(size)


def test_arguments_of_train_test_split(ds):
    for size in ("0.2", None, [1], True):
        with pytest.raises(TypeError, match="must be an int or a float"):
            ds.train_test_split(size)
    with pytest.raises(ValueError, match="shuffle and stratify"):
        ds.train_test_split(0.2, shuffle=True, stratify="k")
    with pytest.raises(ValueError, match="no column named 'q'"):
        ds.train_test_split(0.2, stratify="q")


# Inspection


def test_take(ds, capsys):
    assert ds.take(2)[1] == {"x": 1, "y": pytest.approx(frame().y[1]), "k": "b", "n": 1.0}
    assert len(ds.take()) == 20
    assert len(ds.take(1000)) == ROWS
    assert len(ds.take_all()) == len(ds.take_all(limit=ROWS)) == ROWS
    batch = ds.take_batch(3)
    np.testing.assert_array_equal(batch["x"], [0, 1, 2])
    assert isinstance(ds.take_batch(3, batch_format="pyarrow"), pa.Table)
    pd.testing.assert_frame_equal(ds.take_batch(30, batch_format="pandas"), frame().head(30), check_dtype=False)
    ds.select_columns("x").show(2)
    assert capsys.readouterr().out == "{'x': 0}\n{'x': 1}\n"
    with pytest.raises(ValueError, match="more rows"):
        ds.take_all(limit=99)
    with pytest.raises(ValueError, match=r"take\(0\)"):
        ds.take(0)
    with pytest.raises(ValueError, match="empty"):
        ds.filter("x > 1000").take_batch()
    with pytest.raises(ValueError, match="batch_format='list'"):
        ds.take_batch(batch_format="list")


def test_whole_tables(ds):
    assert ds.to_arrow().num_rows == ROWS
    assert pa.table(ds).equals(ds.to_arrow().combine_chunks()) or pa.table(ds).to_pydict() == ds.to_arrow().to_pydict()
    assert ds.limit(0).to_arrow().schema == ds.schema()
    assert len(ds.to_pandas(limit=ROWS)) == ROWS
    with pytest.raises(ValueError, match="more rows than limit=99"):
        ds.to_pandas(limit=99)
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(ds)["x"].sum() == ds.sum("x")


def test_materialize():
    calls = []

    def counted(batch):
        calls.append(1)
        return batch

    dataset = data.range(10, override_num_blocks=2).map_batches(counted).materialize()
    assert isinstance(dataset, data.MaterializedDataset)
    before = len(calls)
    assert before >= 2
    assert dataset.count() == 10 and dataset.take_all() == dataset.take_all()
    assert len(calls) == before


def test_repr_describes_the_dataset(ds):
    ds.set_name("numbers")
    changed = ds.map(lambda row: {"a": row["x"]}).filter("a > 3")
    assert changed.name == "numbers"
    assert repr(changed).startswith("Dataset(numbers: from_pandas -> map(") and "filter((a > 3))" in repr(changed)
    assert ds.copy().take(1) == ds.take(1)
    assert ds.size_bytes() > ROWS * 8
    assert ds.schema().names == ds.columns()
    assert "not read on the driver yet" in data.range(3).stats()
    ds.take_all()
    assert "100 rows" in ds.stats() and "rows/s" in ds.stats()
    assert ds.input_files() == []
    assert bool(ds)
    with pytest.raises(TypeError, match="iter_rows"):
        list(ds)
    with pytest.raises(TypeError, match=r"count\(\)"):
        len(ds)


def test_empty_datasets():
    empty = data.from_arrow(pa.table({"x": pa.array([], pa.int64())}))
    assert empty.count() == 0 and empty.take_all() == [] and empty.take() == []
    assert empty.map(lambda row: row).count() == 0
    assert empty.map_batches(lambda batch: batch).plan().fragments == []
    assert empty.filter("x > 1").union(empty).repartition(3).sort("x").count() == 0
    assert [part.count() for part in empty.split(2)] == [0, 0]
    assert empty.random_shuffle(seed=1).take_all() == empty.random_shuffle().limit(3).take_all() == []
    assert (empty.sum("x"), empty.mean("x"), empty.min("x"), empty.std("x"), empty.unique("x")) == (None,) * 4 + ([],)
    assert list(empty.to_pandas().columns) == ["x"]
    assert empty.groupby("x").count().take_all() == []


# Batches


def test_batches_here(ds):
    assert [row["x"] for row in ds.iter_rows()] == list(range(ROWS))
    sizes = [len(batch["x"]) for batch in ds.iter_batches(batch_size=30)]
    assert sizes == [30, 30, 30, 10]
    assert [len(batch) for batch in ds.iter_batches(batch_size=30, drop_last=True, batch_format="pandas")] == [30] * 3
    shuffled = ds.random_shuffle(seed=5)
    # The rows read here are the rows that one worker trains on.
    assert [row["x"] for row in shuffled.iter_rows()] == xs(shuffled) == xs(shuffled.limit(ROWS))
    assert ds.iterator().count() == ROWS


def test_batches_of_uncounted_rows(ds):
    calls = []

    def even(row):
        calls.append(row["x"])
        return row["x"] % 2 == 0

    dataset = ds.filter(even)
    found = [batch["x"].tolist() for batch in dataset.iter_batches(batch_size=20)]
    assert found == [list(range(i, min(i + 40, ROWS), 2)) for i in range(0, ROWS, 40)]
    assert calls == list(range(ROWS))  # once: rows are not counted first
    for batch in dataset.iter_batches(batch_size=20):
        batch["x"] += 1  # the batch is writable
    assert [row["x"] for row in dataset.iter_rows()] == list(range(0, ROWS, 2))
    assert [len(batch["x"]) for batch in dataset.iter_batches(batch_size=20, drop_last=True)] == [20, 20]
    local = [x for batch in dataset.iter_batches(batch_size=10, local_shuffle_buffer_size=20) for x in batch["x"]]
    assert sorted(local) == list(range(0, ROWS, 2))


def test_streaming_split(ds):
    for equal in (True, False):
        parts = ds.streaming_split(3, equal=equal)
        rows = [[row["x"] for row in part.iter_rows()] for part in parts]
        assert len({*rows[0], *rows[1], *rows[2]}) == sum(map(len, rows)) == (99 if equal else 100)
        assert max(map(len, rows)) - min(map(len, rows)) <= (0 if equal else 1)


# Files


def test_write_parquet(ds, tmp_path):
    ds.write_parquet(tmp_path / "out", min_rows_per_file=30, compression="gzip")
    files = sorted((tmp_path / "out").iterdir())
    assert [pq.read_table(file).num_rows for file in files] == [42, 43, 15]
    assert pq.ParquetFile(files[0]).metadata.row_group(0).column(0).compression == "GZIP"
    same(data.read_parquet(tmp_path / "out"), frame())
    ds.limit(3).write_parquet(tmp_path / "out")
    assert pa.dataset.dataset(tmp_path / "out").count_rows() == 103
    with pytest.raises(FileExistsError, match="has 4 files"):
        ds.write_parquet(tmp_path / "out", mode="error")
    ds.write_parquet(tmp_path / "out", mode="ignore")
    assert len(list((tmp_path / "out").iterdir())) == 4
    ds.limit(5).write_parquet(tmp_path / "out", mode="overwrite")
    assert pa.dataset.dataset(tmp_path / "out").count_rows() == 5
    with pytest.raises(ValueError, match="would be overwritten while it is read"):
        data.read_parquet(tmp_path / "out").write_parquet(tmp_path / "out", mode="overwrite")
    with pytest.raises(ValueError, match="mode='replace'"):
        ds.write_parquet(tmp_path / "out", mode="replace")
    ds.filter("x < 0").write_parquet(tmp_path / "empty")
    assert pa.dataset.dataset(tmp_path / "empty").schema.names == ["x", "y", "k", "n"]


def test_write_partitions(ds, tmp_path):
    ds.write_parquet(tmp_path, partition_cols=["k"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k=a", "k=b", "k=c"]
    back = pa.dataset.dataset(tmp_path, partitioning="hive").to_table().to_pandas().sort_values("x")
    pd.testing.assert_frame_equal(back[["x", "y", "n"]].reset_index(drop=True), frame()[["x", "y", "n"]])


def test_write_csv_and_json(ds, tmp_path):
    ds.write_csv(tmp_path / "csv", min_rows_per_file=50, include_header=True)
    files = sorted((tmp_path / "csv").iterdir())
    assert len(files) == 2
    back = pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
    pd.testing.assert_frame_equal(back, frame(), check_dtype=False)
    day = datetime.date(2024, 2, 29)
    rows = [
        {"a": 1, "t": np.array([1.0, 2.0]), "d": day, "s": "ü"},
        {"a": math.nan, "t": np.array([3.0, 4.0]), "d": day, "s": ""},
    ]
    data.from_items(rows).write_json(tmp_path / "json")
    (file,) = (tmp_path / "json").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"a": 1, "t": [1.0, 2.0], "d": "2024-02-29", "s": "ü"},
        {"a": None, "t": [3.0, 4.0], "d": "2024-02-29", "s": ""},
    ]
    with pytest.raises(ValueError, match=r"column 't'.*CSV cannot hold"):
        data.from_items(rows).write_csv(tmp_path / "no")
    assert list((tmp_path / "no").iterdir()) == []


def test_write_numpy(ds, tmp_path):
    ds.write_numpy(tmp_path / "x", column="x")
    (file,) = (tmp_path / "x").iterdir()
    np.testing.assert_array_equal(np.load(file), frame().x)
    data.range_tensor(10, shape=(2, 3)).write_numpy(tmp_path / "t", column="data", min_rows_per_file=5)
    loaded = [np.load(file) for file in sorted((tmp_path / "t").iterdir())]
    assert sum(len(part) for part in loaded) == 10 and loaded[0].shape[1:] == (2, 3)
    with pytest.raises(ValueError, match="write_numpy: column 'l'"):
        data.from_items([{"l": [1]}, {"l": [1, 2]}]).write_numpy(tmp_path / "l", column="l")
    with pytest.raises(ValueError, match="no column named 'q'"):
        ds.write_numpy(tmp_path / "q", column="q")


def test_a_write_that_fails_leaves_no_half_file(ds, tmp_path):
    def late(row):
        if row["x"] == 70:
            raise RuntimeError("no 70")
        return row

    with pytest.raises(data.DataError, match="no 70"):
        ds.map(late).write_parquet(tmp_path / "out", min_rows_per_file=20)
    written = list((tmp_path / "out").iterdir())
    assert written and all(pq.read_table(file).num_rows >= 20 for file in written)
    assert not [file for file in written if file.name.startswith(".")]
