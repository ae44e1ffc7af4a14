"""Sort, join, zip, groups and aggregates, against pandas."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme import data
from trireme.data.aggregate import AbsMax, Count, Max, Mean, Min, Std, Sum, Unique

ROWS = 200


def frame(rows=ROWS, seed=1):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": generator.integers(-50, 50, rows),
            "y": generator.normal(1e6, 3, rows),
            "k": generator.choice(["a", "b", "c", "d"], rows),
            "j": generator.integers(0, 3, rows),
            "n": np.where(generator.random(rows) < 0.2, np.nan, generator.normal(size=rows)),
            "row": np.arange(rows),
        }
    )


def dataset(df, blocks=7):
    table = pa.Table.from_pandas(df, preserve_index=False)
    return data.from_arrow(table, override_num_blocks=blocks)


def same(found, expected):
    pd.testing.assert_frame_equal(found.to_pandas(), expected.reset_index(drop=True), check_dtype=False)


# Sort


@pytest.mark.parametrize(
    ("key", "descending"),
    [
        ("x", False),
        ("x", True),
        (["k", "x"], False),
        (["k", "x"], [True, False]),
        (["j", "k", "y"], [False, True, True]),
    ],
)
def test_sort(key, descending):
    up = [not d for d in descending] if isinstance(descending, list) else not descending
    expected = frame().sort_values(key, ascending=up, kind="stable")
    if isinstance(key, list):  # pandas is stable for one key only
        expected = frame().sort_values(
            [*key, "row"], ascending=[*(up if isinstance(up, list) else [up] * len(key)), True]
        )
    same(dataset(frame()).sort(key, descending), expected)


def test_nulls_are_sorted_last():
    df = frame()
    for descending in (False, True):
        found = dataset(df).sort("n", descending).to_arrow().column("n")
        values = df.n.dropna().sort_values(ascending=not descending)
        assert found.to_pylist() == [*values, *[None] * int(df.n.isna().sum())]


def test_sort_is_lazy_and_moves_columns_of_any_type():
    tensors = data.range_tensor(6, shape=(2, 2)).zip(data.from_items([{"a": a} for a in (3, 1, 2, 5, 4, 0)]))
    ordered = tensors.sort("a")
    assert ordered.schema().names == ["data", "a"]
    assert [int(row["data"][0, 0]) for row in ordered.take_all()] == [5, 1, 2, 0, 4, 3]
    with pytest.raises(ValueError, match="cannot sort by data"):
        tensors.sort("data").take()
    with pytest.raises(ValueError, match="2 values of `descending` for 1 column;"):
        tensors.sort("a", [True, False])
    with pytest.raises(ValueError, match="pass one or more columns to sort by"):
        tensors.sort([])


# Join


def sides():
    left = pd.DataFrame({"id": [1, 2, 2, 3, 5], "v": list("abcde"), "row": range(5)})
    right = pd.DataFrame({"id": [2, 3, 3, 4], "w": [20.0, 30.0, 31.0, 40.0]})
    return left, right


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("inner", "inner"),
        ("left", "left"),
        ("left_outer", "left"),
        ("right", "right"),
        ("full_outer", "outer"),
        ("full", "outer"),
    ],
)
def test_join(kind, how):
    left, right = sides()
    found = dataset(left, 2).join(dataset(right, 2), kind, 4, on=("id",)).to_pandas()
    expected = left.merge(right, on="id", how=how)
    columns = ["id", "v", "row", "w"]
    assert list(found.columns) == columns
    order = ["id", "row", "w"]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True),
        expected[columns].sort_values(order, ignore_index=True),
        check_dtype=False,
    )


def test_join_keeps_the_order_of_the_left():
    left, right = sides()
    found = dataset(left, 2).join(dataset(right, 2), "left", on="id").to_pandas()
    assert list(found.row) == [0, 1, 2, 3, 3, 4]
    assert list(found.w.dropna()) == [20.0, 20.0, 30.0, 31.0]


def test_semi_and_anti_joins():
    left, right = sides()
    both = dataset(left, 2), dataset(right, 2)
    same(both[0].join(both[1], "semi", on="id"), left[left.id.isin(right.id)])
    same(both[0].join(both[1], "left_anti", on="id"), left[~left.id.isin(right.id)])
    same(both[0].join(both[1], "right_semi", on="id"), right[right.id.isin(left.id)])
    same(both[0].join(both[1], "right_anti", on="id"), right[~right.id.isin(left.id)])


def test_join_by_several_columns_and_other_names():
    left = frame(60, 2)[["k", "j", "x"]]
    right = frame(30, 3)[["k", "j", "y"]].rename(columns={"k": "kk", "j": "jj"})
    found = dataset(left).join(dataset(right), "inner", on=["k", "j"], right_on=["kk", "jj"]).to_pandas()
    expected = left.merge(right, left_on=["k", "j"], right_on=["kk", "jj"])[["k", "j", "x", "y"]]
    order = ["k", "j", "x", "y"]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True), expected.sort_values(order, ignore_index=True), check_dtype=False
    )


def test_join_of_tensors_and_suffixes():
    left = data.range_tensor(4, shape=(2,)).zip(data.range(4))
    right = data.from_items([{"id": 2, "data": "two"}, {"id": 0, "data": "zero"}])
    found = left.join(right, "left", on="id", right_suffix="_r").take_all()
    assert [(row["id"], row["data"][0], row["data_r"]) for row in found] == [
        (0, 0, "zero"),
        (1, 1, None),
        (2, 2, "two"),
        (3, 3, None),
    ]
    with pytest.raises(ValueError, match="column 'data' is in both"):
        left.join(right, "inner", on="id").take()


def test_invalid_joins_are_rejected():
    left, right = (dataset(side, 1) for side in sides())
    with pytest.raises(ValueError, match="expected one of inner"):
        left.join(right, "cross", on="id")
    with pytest.raises(ValueError, match="no column named 'q'; the columns are id, v, row"):
        left.join(right, "inner", on="q").take()
    with pytest.raises(ValueError, match="the same number of columns"):
        left.join(right, "inner", on=["id", "v"], right_on=["id"])
    with pytest.raises(ValueError, match=r"cannot match v: .*string with id: int64"):
        left.join(right, "inner", on="v", right_on="id").take()


# Zip


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(0, 40), one=st.integers(1, 7), two=st.integers(1, 7), cut=st.integers(0, 40))
def test_zip_is_side_by_side(rows, one, two, cut):
    left = data.range(rows, override_num_blocks=one).rename_columns({"id": "a"})
    right = data.range(rows, override_num_blocks=two).filter("id >= 0").with_column("id", "id * 2")
    zipped = left.zip(right)
    expected = [{"a": i, "id": 2 * i} for i in range(rows)]
    assert zipped.take_all() == expected
    assert zipped.count() == rows
    assert zipped.select_columns(["id"]).limit(cut).take_all() == [{"id": row["id"]} for row in expected[:cut]]
    planned = zipped.plan()
    for index, (count, _, _) in enumerate(planned.fragments):
        reader, first = planned.reads().open(index, count // 2)
        assert reader.read_all().num_rows == count - first


def test_names_and_lengths_of_zipped():
    ids = data.range(3)
    assert ids.zip(ids, ids).columns() == ["id", "id_1", "id_2"]
    assert ids.zip(ids.random_shuffle(seed=1)).sum("id_1") == 3
    with pytest.raises(ValueError, match="one dataset has 3 rows and the other 4"):
        ids.zip(data.range(4)).take()
    with pytest.raises(TypeError, match="argument 1 is a list"):
        ids.zip([1])
    with pytest.raises(ValueError, match="at least one"):
        ids.zip()


# Groups


def test_groups():
    df = frame()
    by_k = df.groupby("k")
    grouped = dataset(df).groupby("k")
    same(grouped.count(), by_k.size().reset_index(name="count()"))
    for name in ("sum", "min", "max", "mean", "std"):
        found = getattr(grouped, name)(["x", "n"]).to_pandas()
        expected = getattr(by_k[["x", "n"]], name)().reset_index()
        assert list(found.columns) == ["k", f"{name}(x)", f"{name}(n)"]
        pd.testing.assert_frame_equal(found.set_axis(expected.columns, axis=1), expected, check_dtype=False)
    two = dataset(df).groupby(["j", "k"]).mean("y").to_pandas()
    expected = df.groupby(["j", "k"]).y.mean().reset_index()
    pd.testing.assert_frame_equal(two.set_axis(expected.columns, axis=1), expected, check_dtype=False)
    assert grouped.sum().columns() == ["k", "sum(x)", "sum(y)", "sum(j)", "sum(n)", "sum(row)"]
    assert "by k" in repr(grouped)


def test_groups_of_nulls_and_without_a_key():
    df = frame()
    found = dataset(df).groupby("n").count()
    assert found.count() == df.n.nunique() + 1
    assert found.take_all()[-1] == {"n": None, "count()": int(df.n.isna().sum())}
    assert dataset(df).groupby(None).sum("x").take_all() == [{"sum(x)": int(df.x.sum())}]
    with pytest.raises(ValueError, match=r"groupby\(j\): cannot compute sum\(k\)"):
        dataset(df).groupby("j").sum("k").take()


def test_aggregates_of_groups():
    df = frame()
    found = (
        dataset(df)
        .groupby("k")
        .aggregate(
            Count(),
            Count("n", ignore_nulls=True),
            AbsMax("x"),
            Std("x", ddof=0),
            Mean("n", alias_name="m"),
            Unique("j"),
        )
    )
    rows = {row["k"]: row for row in found.take_all()}
    for key, part in df.groupby("k"):
        row = rows[key]
        assert row["count()"] == len(part)
        assert row["count(n)"] == part.n.count()
        assert row["abs_max(x)"] == part.x.abs().max()
        assert row["std(x)"] == pytest.approx(part.x.std(ddof=0))
        assert row["m"] == pytest.approx(part.n.mean())
        assert set(row["unique(j)"]) == set(part.j)


def test_map_groups():
    df = frame()

    def centered(group):
        assert len(set(group["k"])) == 1
        return {"k": group["k"][:1], "rows": [len(group["k"])], "first": group["row"][:1]}

    found = dataset(df).groupby("k").map_groups(centered)
    expected = df.groupby("k").agg(rows=("row", "size"), first=("row", "min")).reset_index()
    same(found, expected)
    assert found.count() == 4
    whole = dataset(df).groupby(["k", "j"]).map_groups(lambda g: g.assign(n=g.x.sum()), batch_format="pandas")
    assert whole.count() == ROWS
    expected = df.sort_values(["k", "j", "row"])
    np.testing.assert_array_equal(whole.to_pandas().n, df.groupby(["k", "j"]).x.transform("sum")[expected.index])
    planned = found.plan()
    assert planned.has_functions and planned.rows == 4


# Over all rows


def test_aggregates():
    df = frame()
    ds = dataset(df)
    for name in ("sum", "min", "max", "mean", "std"):
        assert getattr(ds, name)("x") == pytest.approx(getattr(df.x, name)())
        assert getattr(ds, name)("n") == pytest.approx(getattr(df.n, name)())
        both = getattr(ds, name)(["x", "y"])
        assert both == pytest.approx({f"{name}(x)": getattr(df.x, name)(), f"{name}(y)": getattr(df.y, name)()})
    assert ds.std("y") == pytest.approx(df.y.std(), rel=1e-9)
    assert ds.std("y", ddof=0) == pytest.approx(df.y.std(ddof=0), rel=1e-9)
    assert ds.min("k") == "a" and ds.max("k") == "d"
    assert set(ds.sum()) == {f"sum({name})" for name in ["x", "y", "j", "n", "row"]}
    assert ds.sum("n", ignore_nulls=False) is None and ds.mean("x", ignore_nulls=False) == pytest.approx(df.x.mean())
    assert ds.limit(1).std("x") != ds.limit(1).std("x")  # NaN
    assert math.isnan(ds.limit(1).std("x"))
    found = ds.aggregate(Sum("x"), Min("y"), Max("y"), Count(), Count("n", ignore_nulls=True), AbsMax("x"))
    assert found == {
        "sum(x)": int(df.x.sum()),
        "min(y)": df.y.min(),
        "max(y)": df.y.max(),
        "count()": ROWS,
        "count(n)": int(df.n.count()),
        "abs_max(x)": int(df.x.abs().max()),
    }


def test_unique():
    df = frame()
    assert dataset(df).unique("k") == list(df.k.unique())
    assert dataset(df).unique("x") == list(df.x.unique())
    assert None in dataset(df).unique("n") and None not in dataset(df).unique("n", ignore_nulls=True)


def test_invalid_aggregates_are_rejected():
    ds = dataset(frame())
    with pytest.raises(ValueError, match=r"mean\(k\): column 'k' is (large_)?string, which has no mean"):
        ds.mean("k")
    with pytest.raises(ValueError, match="at least one"):
        ds.aggregate()
    with pytest.raises(TypeError, match="is not an aggregate; pass for example"):
        ds.aggregate("sum")
    with pytest.raises(ValueError, match=r"Sum\(\) needs a column"):
        ds.aggregate(Sum())
    with pytest.raises(ValueError, match="no column named 'q'"):
        ds.aggregate(Sum("q"))
    with pytest.raises(ValueError, match="no column is numeric"):
        ds.select_columns("k").sum()


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=40), blocks=st.integers(1, 6))
def test_aggregates_do_not_depend_on_batches(values, blocks):
    ds = data.from_arrow(pa.table({"v": pa.array(values, pa.float64())}), override_num_blocks=blocks)
    series = pd.Series(values, dtype="float64")
    if series.notna().any():
        assert ds.sum("v") == pytest.approx(series.sum(), abs=1e-6)
        assert ds.mean("v") == pytest.approx(series.mean(), abs=1e-6)
        assert ds.std("v") == pytest.approx(series.std(), nan_ok=True, abs=1e-6)
        assert (ds.min("v"), ds.max("v")) == (series.min(), series.max())
    else:
        assert ds.sum("v") is ds.mean("v") is ds.std("v") is ds.min("v") is None


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.integers(-9, 9)), max_size=40),
    blocks=st.integers(1, 6),
)
def test_sort_and_groups_of_anything(rows, blocks):
    table = pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.int64())})
    ds = data.from_arrow(table, override_num_blocks=blocks)

    def key(k):
        return (k is None, k or 0)

    by_key = sorted(rows, key=lambda row: key(row[0]))
    assert [(row["k"], row["v"]) for row in ds.sort("k").take_all()] == by_key
    sums = {}
    for k, v in rows:
        sums[k] = sums.get(k, 0) + v
    expected = [{"k": k, "sum(v)": sums[k]} for k in sorted(sums, key=key)]
    assert ds.groupby("k").sum("v").take_all() == expected
    first = ds.groupby("k").map_groups(lambda group: {"k": [group["k"].tolist()[0]], "v": [int(group["v"].sum())]})
    assert [row["v"] for row in first.take_all()] == [row["sum(v)"] for row in expected]
