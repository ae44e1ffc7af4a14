"""Every preprocessor against pandas, numpy and scikit-learn, over seeded random tables."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trireme.data
from trireme.data import Dataset
from trireme.data.preprocessors import (
    Categorizer,
    Concatenator,
    CountVectorizer,
    CustomKBinsDiscretizer,
    FeatureHasher,
    HashingVectorizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    Preprocessor,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    UniformKBinsDiscretizer,
)

sklearn = pytest.importorskip("sklearn")

from sklearn import preprocessing  # noqa: E402

SEEDS = range(12)
NUMBERS = [pa.float64(), pa.float32(), pa.float16(), pa.int64(), pa.int32(), pa.int8(), pa.uint64(), pa.bool_()]
WORDS = ["the", "cat", "sat", "on", "", "Äpfel", "mat"]


def numbers(random: np.random.Generator, rows: int, kind: pa.DataType, *, gaps: bool) -> pa.Array:
    if pa.types.is_boolean(kind):
        values: Any = random.random(rows) < 0.5
    elif pa.types.is_integer(kind):
        low, high = (0, 100) if kind == pa.uint64() else (-100, 100)
        values = random.integers(low, high, rows)
    else:
        values = np.round(random.normal(0, 20, rows), 2)
        values[random.random(rows) < 0.1] = -0.0
        if gaps:
            values[random.random(rows) < 0.1] = np.nan
    missing = random.random(rows) < 0.15 if gaps else None
    if kind == pa.float16():
        values = np.asarray(values, np.float16)
    return pa.array(values, mask=missing).cast(kind)


def categories(random: np.random.Generator, rows: int, kind: str) -> pa.Array:
    zone = datetime.UTC
    values, of = {
        "string": (WORDS, pa.string()),
        "large_string": (WORDS, pa.large_string()),
        "string_view": (WORDS, pa.string_view()),
        "dictionary": (WORDS, pa.string()),
        "binary": ([b"\xff", b"", b"a"], pa.binary()),
        "int64": ([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0], pa.int64()),
        "uint64": ([2**64 - 1, 2**64 - 2, 2**63, 0, 7], pa.uint64()),
        "float64": ([0.5, -1.0, 2.0, 1e300], pa.float64()),
        "bool": ([True, False], pa.bool_()),
        "date32": ([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1969, 12, 31)], pa.date32()),
        "timestamp": ([datetime.datetime(1960, 1, 2, 3, 4, 5, 6), datetime.datetime(2026, 1, 1)], pa.timestamp("us")),
        "zoned": (
            [datetime.datetime(2026, 1, 1, tzinfo=zone), datetime.datetime(1960, 1, 1, 1, tzinfo=zone)],
            pa.timestamp("ms", "Europe/Berlin"),
        ),
        "time": ([datetime.time(1, 2, 3, 4), datetime.time(23, 59)], pa.time64("us")),
        "duration": ([datetime.timedelta(-1, 5), datetime.timedelta(3, 4, 5)], pa.duration("us")),
        "decimal": ([Decimal("1.50"), Decimal("-2.25"), Decimal("0.00"), Decimal("1E+20")], pa.decimal128(30, 2)),
        "decimal256": ([Decimal("1.5"), Decimal("-2.5"), Decimal("1E+45")], pa.decimal256(60, 1)),
    }[kind]  # type: ignore[index]
    chosen = pa.array([values[i] for i in random.integers(0, len(values), rows)], of)  # type: ignore[arg-type]
    return chosen.dictionary_encode() if kind == "dictionary" else chosen


CATEGORIES = [
    "string", "large_string", "string_view", "dictionary", "binary", "int64", "uint64", "float64", "bool", "date32",
    "timestamp", "zoned", "time", "duration", "decimal", "decimal256",
]  # fmt: skip


def dataset(table: pa.Table, random: np.random.Generator) -> Dataset:
    """In batches of random sizes, some of them empty."""
    cuts = sorted(random.integers(0, table.num_rows + 1, 3).tolist())
    bounds = [0, *cuts, table.num_rows]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    return trireme.data.from_arrow([part for part in parts if part.num_rows] or [table])


def floats(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = np.array([math.nan if value is None else float(value) for value in column.to_pylist()])
    return found


def same(found: Any, expected: Any) -> bool:
    """NaN equals NaN."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, (list, np.ndarray)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == expected)


def transformed(fitted: Preprocessor, table: pa.Table, random: np.random.Generator) -> pa.Table:
    """Checks that slices and a preprocessor read from JSON give the same."""
    whole: pa.Table = fitted.transform_batch(table)
    again = Preprocessor.deserialize(fitted.serialize())
    assert again.stats_ == fitted.stats_
    start = int(random.integers(0, table.num_rows))
    assert same(again.transform_batch(table.slice(start)).to_pylist(), whole.slice(start).to_pylist())
    empty = again.transform_batch(table.slice(0, 0))
    assert empty.num_rows == 0 and empty.schema == whole.schema
    return whole


@pytest.mark.parametrize("seed", SEEDS)
def test_scalers(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 80))
    kind = NUMBERS[seed % len(NUMBERS)]
    table = pa.table({"x": numbers(random, rows, kind, gaps=True), "other": pa.array(range(rows)).cast(pa.string())})
    values = floats(table["x"])
    present = values[~np.isnan(values)]
    if not len(present):
        pytest.skip("all values are missing")
    ds = dataset(table, random)
    references = [
        (StandardScaler(["x"]), preprocessing.StandardScaler()),
        (MinMaxScaler(["x"]), preprocessing.MinMaxScaler()),
        (MaxAbsScaler(["x"]), preprocessing.MaxAbsScaler()),
        (RobustScaler(["x"], (0.1, 0.7)), preprocessing.RobustScaler(quantile_range=(10, 70))),
    ]
    tolerance = 1e-5 if kind == pa.float32() else 1e-9
    for scaler, reference in references:
        found = transformed(scaler.fit(ds), table, random)
        expected = reference.fit_transform(values[:, None])[:, 0]
        np.testing.assert_allclose(floats(found["x"]), expected, rtol=tolerance, atol=tolerance)
        assert found["x"].is_null().to_pylist() == table["x"].is_null().to_pylist()
        assert found["x"].type == (pa.float32() if kind == pa.float32() else pa.float64())
        assert found["other"].equals(table["other"])


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_powers_and_bins(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    rows = int(random.integers(2, 80))
    kinds = [NUMBERS[i] for i in random.integers(0, len(NUMBERS), 3)]
    table = pa.table({f"c{i}": numbers(random, rows, kind, gaps=False) for i, kind in enumerate(kinds)})
    columns = table.column_names
    values = np.stack([floats(table[name]) for name in columns], 1)
    for norm in ("l1", "l2", "max"):
        found = transformed(Normalizer(columns, norm=norm), table, random)
        np.testing.assert_allclose(
            np.stack([floats(found[name]) for name in columns], 1),
            preprocessing.normalize(values, norm),
            rtol=1e-5, atol=1e-7,
        )  # fmt: skip
    power = float(random.choice([-1.0, 0.0, 0.5, 2.0, 3.0]))
    reference = preprocessing.PowerTransformer(standardize=False)
    reference.fit(values + random.normal(size=values.shape))
    reference.lambdas_ = np.full(len(columns), power)
    found = transformed(PowerTransformer(columns, power), table, random)
    np.testing.assert_allclose(
        np.stack([floats(found[name]) for name in columns], 1), reference.transform(values), rtol=1e-4, atol=1e-5
    )
    gaps = pa.table({"x": numbers(random, rows, kinds[0], gaps=True)})
    series = pd.Series(floats(gaps["x"]))
    right, lowest = bool(random.integers(2)), bool(random.integers(2))
    edges = sorted({*np.round(random.normal(0, 20, 4), 1).tolist(), -5.0})
    custom = CustomKBinsDiscretizer(["x"], edges, right=right, include_lowest=lowest)
    expected = pd.cut(series, edges, labels=False, right=right, include_lowest=lowest)
    np.testing.assert_array_equal(floats(transformed(custom, gaps, random)["x"]), expected.to_numpy(np.float64))
    if series.notna().any():
        uniform = UniformKBinsDiscretizer(["x"], 5, right=right, include_lowest=lowest).fit(dataset(gaps, random))
        expected = pd.cut(series, 5, labels=False, right=right, include_lowest=lowest)
        np.testing.assert_array_equal(floats(transformed(uniform, gaps, random)["x"]), expected.to_numpy(np.float64))


@pytest.mark.parametrize("kind", CATEGORIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_categories(kind: str, seed: int) -> None:
    random = np.random.default_rng(200 + seed)
    rows = int(random.integers(3, 60))
    table = pa.table({"c": categories(random, rows, kind)})
    values = table["c"].to_pylist()
    known = sorted(set(values))
    ds = dataset(table, random)
    ordinal = OrdinalEncoder(["c"]).fit(ds)
    assert ordinal.stats_ == {"unique_values(c)": {value: index for index, value in enumerate(known)}}
    codes = [known.index(value) for value in values]
    assert transformed(ordinal, table, random)["c"].to_pylist() == codes
    hot = transformed(OneHotEncoder(["c"], output_columns=["hot"]).fit(ds), table, random)
    assert hot["c"].equals(table["c"])
    assert np.array_equal(np.eye(len(known))[codes], hot["hot"].combine_chunks().to_numpy_ndarray())
    labels = LabelEncoder("c", output_column="n").fit(ds)
    back = labels.inverse_transform_batch(transformed(labels, table, random).select(["n"]))
    assert back["c"].to_pylist() == values
    categorical = transformed(Categorizer(["c"]).fit(ds), table, random)["c"]
    assert pa.types.is_dictionary(categorical.type) and categorical.to_pylist() == values
    most = SimpleImputer(["c"], strategy="most_frequent").fit(ds)
    frequent = Counter(values).most_common(1)[0][0]  # the first of those that are equally frequent
    assert most.stats_ == {"most_frequent(c)": frequent}
    gap = pa.array([None, *values[:2]], table["c"].type)
    assert most.transform_batch(pa.table({"c": gap}))["c"].to_pylist() == [frequent, *values[:2]]
    fewer = 2 if len(known) > 2 else 1
    counts = Counter(values)
    kept = sorted(sorted(counts, key=lambda value: -counts[value])[:fewer])
    limited = OneHotEncoder(["c"], max_categories={"c": fewer}).fit(ds)
    assert list(limited.stats_["unique_values(c)"]) == kept


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_and_text(seed: int) -> None:
    random = np.random.default_rng(300 + seed)
    rows = int(random.integers(2, 50))
    lists = [[WORDS[i] for i in random.integers(0, len(WORDS), random.integers(0, 5))] for _ in range(rows)]
    lists[0] = ["cat"]
    texts = [" ".join(words) for words in lists]
    kind = [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string_view())][seed % 3]
    table = pa.table({"l": pa.array(lists, kind), "t": pa.array(texts, [pa.string(), pa.large_string()][seed % 2])})
    ds = dataset(table, random)
    hot = transformed(MultiHotEncoder(["l"]).fit(ds), table, random)["l"].combine_chunks().to_numpy_ndarray()
    assert np.array_equal(hot, preprocessing.MultiLabelBinarizer().fit_transform(lists))
    known = sorted({word for words in lists for word in words})
    ordinal = transformed(OrdinalEncoder(["l"]).fit(ds), table, random)["l"].to_pylist()
    assert ordinal == [[known.index(word) for word in words] for words in lists]
    whole = OrdinalEncoder(["l"], encode_lists=False).fit(ds)
    unique = sorted({tuple(words) for words in lists})
    assert whole.stats_["unique_values(l)"] == {words: index for index, words in enumerate(unique)}
    assert transformed(whole, table, random)["l"].to_pylist() == [unique.index(tuple(words)) for words in lists]

    tokens = [text.split(" ") for text in texts]
    assert transformed(Tokenizer(["t"]), table, random)["t"].to_pylist() == tokens
    counts = Counter(token for each in tokens for token in each)
    vectorizer = CountVectorizer(["t"]).fit(ds)
    assert list(vectorizer.stats_["token_counts(t)"].items()) == counts.most_common()
    expected = [[each.count(token) for token, _ in counts.most_common()] for each in tokens]
    found = transformed(vectorizer, table, random)["t"].combine_chunks().to_numpy_ndarray()
    assert found.tolist() == expected
    hashed = transformed(HashingVectorizer(["t"], 7), table, random)["t"].combine_chunks().to_numpy_ndarray()
    places = [[int(hashlib.sha256(token.encode()).hexdigest(), 16) % 7 for token in each] for each in tokens]
    assert hashed.tolist() == [np.bincount(each, minlength=7).tolist() for each in places]
    # A function may return numbers.
    lengths = CountVectorizer(["t"], tokenization_fn=lambda text: [len(word) for word in text.split(" ")]).fit(ds)
    sizes = Counter(len(token) for each in tokens for token in each)
    assert list(lengths.stats_["token_counts(t)"].items()) == sizes.most_common()
    assert lengths.transform_batch(table)["t"].combine_chunks().to_numpy_ndarray().sum() == sum(sizes.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_imputers_and_tensors(seed: int) -> None:
    random = np.random.default_rng(400 + seed)
    rows = int(random.integers(2, 60))
    kinds = [NUMBERS[i] for i in random.integers(0, len(NUMBERS), 3)]
    table = pa.table({f"c{i}": numbers(random, rows, kind, gaps=True) for i, kind in enumerate(kinds)})
    for name, kind in zip(table.column_names, kinds, strict=True):
        values = floats(table[name])
        present = values[~np.isnan(values)]
        if not len(present):
            continue
        mean = SimpleImputer([name]).fit(dataset(table, random))
        assert mean.stats_[f"mean({name})"] == pytest.approx(present.mean(), rel=1e-12, abs=1e-12)
        filled = transformed(mean, table, random)[name]
        assert filled.null_count == 0
        assert filled.type == (kind if pa.types.is_floating(kind) else pa.float64())
        expected = np.where(np.isnan(values), present.mean(), values)
        np.testing.assert_allclose(floats(filled), expected, rtol=1e-3 if kind == pa.float16() else 1e-6)
        if kind != pa.bool_():
            zero = SimpleImputer([name], strategy="constant", fill_value=0)
            found = transformed(zero, table, random)[name]
            assert found.type == kind and floats(found).tolist() == np.nan_to_num(values, nan=0.0).tolist()
    together = transformed(Concatenator(table.column_names, dtype="float64"), table, random)["concat_out"]
    np.testing.assert_array_equal(
        together.combine_chunks().to_numpy_ndarray(), np.stack([floats(table[name]) for name in table.column_names], 1)
    )
    full = pa.table({f"c{i}": numbers(random, rows, kind, gaps=False) for i, kind in enumerate(kinds)})
    plain = [full[name].to_numpy() for name in full.column_names]
    joined = transformed(Concatenator(full.column_names), full, random)["concat_out"].combine_chunks()
    if joined.type.value_type != pa.bool_():
        found = joined.to_numpy_ndarray()
        assert found.dtype == np.result_type(*plain)
        np.testing.assert_array_equal(found, np.stack(plain, 1).astype(found.dtype))
    sums = transformed(FeatureHasher(full.column_names, 3, "h"), full, random)["h"].combine_chunks().to_numpy_ndarray()
    expected = np.zeros((rows, 3))
    for name in full.column_names:
        expected[:, int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3] += floats(full[name])
    np.testing.assert_allclose(sums, expected)


def test_numbers_of_other_types() -> None:
    """Decimals are numbers; times are refused by name."""
    money = pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2))
    wide = money.cast(pa.decimal256(40, 2))
    found = MaxAbsScaler(["m", "w"]).fit(trireme.data.from_arrow(pa.table({"m": money, "w": wide})))
    assert found.stats_ == {"abs_max(m)": 2.25, "abs_max(w)": 2.25}
    assert found.transform_batch(pa.table({"m": money, "w": wide}))["w"].to_pylist() == [1.5 / 2.25, None, -1.0]
    times = pa.table({"t": pa.array([1, 2], pa.timestamp("ns"))})
    with pytest.raises(ValueError, match=r"'t' is timestamp\[ns\], expected numbers"):
        StandardScaler(["t"]).fit(trireme.data.from_arrow(times))
    # Nanoseconds that differ are different categories, also after JSON.
    encoder = OrdinalEncoder(["t"]).fit(trireme.data.from_arrow(times))
    again = Preprocessor.deserialize(encoder.serialize())
    assert again.transform_batch(times)["t"].to_pylist() == [0, 1]
    nested = pa.table({"s": pa.array([{"a": 1}])})
    with pytest.raises(ValueError, match=r"'s' is struct<.*>, which cannot be a category"):
        OrdinalEncoder(["s"]).fit(trireme.data.from_arrow(nested))


def test_equal_values_of_other_types_are_the_same_category() -> None:
    encoder = OrdinalEncoder(["x"]).fit(trireme.data.from_items([{"x": 0.0}, {"x": 2.0}, {"x": 2.5}]))
    for column in (pa.array([2, 0, 7]), pa.array([2.0, -0.0, 7.0], pa.float32()), pa.array([2, 0, 7], pa.uint64())):
        assert encoder.transform_batch(pa.table({"x": column}))["x"].to_pylist() == [1, 0, None]
    money = OrdinalEncoder(["x"]).fit(trireme.data.from_arrow(pa.table({"x": [Decimal("1.50"), Decimal("2.00")]})))
    finer = pa.table({"x": pa.array([Decimal("2.0000"), Decimal("1.5000")], pa.decimal128(10, 4))})
    assert money.transform_batch(finer)["x"].to_pylist() == [1, 0]


def test_untouched_columns_keep_their_type_and_memory() -> None:
    text = pa.array(["a", "b", None])
    table = pa.table(
        {
            "x": [1.0, 2.0, 3.0],
            "category": text.dictionary_encode(),
            "view": text.cast(pa.string_view()),
            "struct": pa.array([{"a": 1}, None, {"a": 3}]),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0).reshape(3, 2)),
        }
    )
    found = StandardScaler(["x"]).fit(trireme.data.from_arrow(table.select(["x"]))).transform_batch(table)
    assert found.schema.remove_metadata() == table.schema
    for name in table.column_names[1:]:
        assert found[name].equals(table[name])
    before = table["struct"].chunk(0).field("a").buffers()[1]
    assert found["struct"].chunk(0).field("a").buffers()[1].address == before.address
