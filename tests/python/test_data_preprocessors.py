"""Every preprocessor against scikit-learn or pandas, through datasets of several fragments."""

from __future__ import annotations

import datetime
import hashlib
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trireme.data
from trireme import DataParallelTrainer, RunConfig, ScalingConfig
from trireme.data import DataError, Dataset
from trireme.data.preprocessors import (
    BatchMapper,
    Categorizer,
    Chain,
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
    PreprocessorNotFittedException,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    TorchVisionPreprocessor,
    UniformKBinsDiscretizer,
)

sklearn = pytest.importorskip("sklearn")

from sklearn import preprocessing  # noqa: E402
from sklearn.feature_extraction import text as sklearn_text  # noqa: E402


def frame(rows: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "far": random.normal(1e6, 0.5, rows),  # a sum of squares would lose all precision
            "narrow": random.normal(0, 3, rows).astype(np.float32),
            "whole": random.integers(-5, 20, rows),
            "flag": random.random(rows) < 0.3,
            "color": random.choice(["red", "green", "blue", "Äpfel"], rows),
            "text": [" ".join(random.choice(["the", "cat", "sat", "on", "mat"], 6)) for _ in range(rows)],
        }
    )


def dataset(data: pd.DataFrame, parts: int = 4) -> Dataset:
    size = -(-len(data) // parts)
    return trireme.data.from_pandas([data.iloc[start : start + size] for start in range(0, len(data), size)])


def numbers(ds: Dataset, columns: list[str]) -> np.ndarray:
    found: np.ndarray = ds.to_pandas()[columns].to_numpy(np.float64)
    return found


NUMBERS = ["far", "narrow", "whole", "flag"]


@pytest.mark.parametrize(
    ("scaler", "reference"),
    [
        (StandardScaler(NUMBERS), preprocessing.StandardScaler()),
        (MinMaxScaler(NUMBERS), preprocessing.MinMaxScaler()),
        (MaxAbsScaler(NUMBERS), preprocessing.MaxAbsScaler()),
        (RobustScaler(NUMBERS[:3]), preprocessing.RobustScaler()),
        (RobustScaler(NUMBERS[:3], (0.1, 0.8)), preprocessing.RobustScaler(quantile_range=(10, 80))),
        (Normalizer(NUMBERS), preprocessing.Normalizer()),
        (Normalizer(NUMBERS, norm="l1"), preprocessing.Normalizer("l1")),
        (Normalizer(NUMBERS, norm="max"), preprocessing.Normalizer("max")),
    ],
    ids=repr,
)
def test_scalers_do_as_scikit_learn_does(scaler: Any, reference: Any) -> None:
    data = frame()
    expected = reference.fit_transform(data[scaler.columns].astype(np.float64))
    scaled = scaler.fit_transform(dataset(data))
    np.testing.assert_allclose(numbers(scaled, scaler.columns), expected, rtol=1e-6, atol=1e-6)
    # 32 bits stay 32 bits; the other columns and the order of columns stay unchanged.
    assert scaled.schema().field("narrow").type == pa.float32() and scaled.schema().field("far").type == pa.float64()
    assert scaled.columns() == list(data.columns) and scaled.to_pandas()["color"].equals(
        dataset(data).to_pandas()["color"]
    )
    # One batch, which keeps its type.
    part = data[scaler.columns].iloc[5:9]
    by_frame = scaler.transform_batch(part)
    assert list(by_frame.index) == [5, 6, 7, 8]
    np.testing.assert_allclose(by_frame.to_numpy(np.float64), expected[5:9], rtol=1e-6, atol=1e-6)
    by_dict = scaler.transform_batch({name: part[name].to_numpy() for name in part})
    np.testing.assert_allclose(np.stack(list(by_dict.values()), 1), expected[5:9], rtol=1e-6, atol=1e-6)


def test_scalers_leave_what_is_missing_and_survive_constants() -> None:
    half = pa.array(np.array([1, 2, 3, 4], np.float16))
    data = pa.table({"x": [1.0, None, float("nan"), 3.0], "same": [5, 5, 5, 5], "zero": [0.0] * 4, "half": half})
    ds = trireme.data.from_arrow(data)
    scaled = StandardScaler(["x", "same"], output_columns=["x2", "same"]).fit_transform(ds).take_all()
    assert [row["x"] for row in scaled][::3] == [1.0, 3.0]
    assert [row["x2"] for row in scaled][::3] == [-1.0, 1.0] and scaled[1]["x2"] is None and np.isnan(scaled[2]["x2"])
    assert [row["same"] for row in scaled] == [0.0] * 4
    assert [row["half"] for row in MaxAbsScaler(["half"]).fit_transform(ds).take_all()] == [0.25, 0.5, 0.75, 1]
    assert [row["zero"] for row in MaxAbsScaler(["zero"]).fit_transform(ds).take_all()] == [0.0] * 4
    assert [row["same"] for row in MinMaxScaler(["same"]).fit_transform(ds).take_all()] == [0.0] * 4


def test_quantiles_are_nearly_right_when_values_do_not_fit() -> None:
    values = np.random.default_rng(3).lognormal(size=600_000)  # more than the sketch keeps
    ds = trireme.data.from_pandas([pd.DataFrame({"x": part}) for part in np.array_split(values, 7)])
    stats = RobustScaler(["x"], (0.05, 0.95)).fit(ds).stats_
    for fraction, key in ((0.05, "low_quantile(x)"), (0.5, "median(x)"), (0.95, "high_quantile(x)")):
        assert abs((values < stats[key]).mean() - fraction) < 1e-4


@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
@pytest.mark.parametrize("power", [-1.5, 0, 0.5, 2])
def test_the_power_transform_is_that_of_scikit_learn(method: str, power: float) -> None:
    data = frame()[["narrow", "whole"]].astype(np.float64)
    if method == "box-cox":
        data = data.abs() + 0.1
    reference = preprocessing.PowerTransformer(method, standardize=False).fit(data)
    reference.lambdas_ = np.array([power, power])
    found = PowerTransformer(["narrow", "whole"], power, method).transform(dataset(data))
    np.testing.assert_allclose(numbers(found, ["narrow", "whole"]), reference.transform(data), rtol=1e-9)
    if method == "box-cox":
        with pytest.raises(ValueError, match=r"'narrow' has -1\.0.*yeo-johnson"):
            PowerTransformer(["narrow"], power, method).transform_batch({"narrow": [1.0, -1.0]})


def test_ordinal_and_label_encoders_do_as_scikit_learn_does() -> None:
    data = frame()
    expected = preprocessing.OrdinalEncoder().fit_transform(data[["color", "whole", "flag"]])
    encoder = OrdinalEncoder(["color", "whole", "flag"])
    encoded = encoder.fit_transform(dataset(data))
    assert encoded.schema().field("color").type == pa.int64()
    np.testing.assert_array_equal(numbers(encoded, ["color", "whole", "flag"]), expected)
    assert encoder.stats_["unique_values(color)"] == {"blue": 0, "green": 1, "red": 2, "Äpfel": 3}
    unseen = encoder.transform_batch({"color": ["red", "pink"], "whole": [0, 1], "flag": [True, False]})
    assert unseen["color"][0] == 2 and np.isnan(unseen["color"][1])

    labels = LabelEncoder("color", output_column="number")
    numbered = labels.fit_transform(dataset(data))
    np.testing.assert_array_equal(
        numbered.to_pandas()["number"], preprocessing.LabelEncoder().fit_transform(data["color"])
    )
    back = labels.inverse_transform(numbered.drop_columns(["color"]))
    assert back.to_pandas()["color"].tolist() == data["color"].tolist()
    assert labels.inverse_transform_batch({"number": np.array([3, 0])})["color"].tolist() == ["Äpfel", "blue"]
    with pytest.raises(ValueError, match="'number' has values other than the label numbers 0 to 3"):
        labels.inverse_transform_batch({"number": np.array([4])})


def test_one_hot_encoders_do_as_scikit_learn_does() -> None:
    data = frame()
    reference = preprocessing.OneHotEncoder(sparse_output=False).fit(data[["color"]])
    encoder = OneHotEncoder(["color"], output_columns=["hot"])
    encoded = encoder.fit_transform(dataset(data))
    assert encoded.columns() == [*data.columns, "hot"]
    vectors = encoded.take_batch(len(data))["hot"]
    assert vectors.dtype == np.uint8
    np.testing.assert_array_equal(vectors, reference.transform(data[["color"]]))
    assert encoder.transform_batch({"color": ["pink", "red"]})["hot"].tolist() == [[0, 0, 0, 0], [0, 0, 1, 0]]

    few = trireme.data.from_items([{"c": value} for value in "abbcccd"])
    assert OneHotEncoder(["c"], max_categories={"c": 2}).fit_transform(few).take_batch(7)["c"].tolist() == [
        [0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [0, 0],
    ]  # fmt: skip
    whole = trireme.data.from_items([{"c": value} for value in ([1, 2], [3], [1, 2])])
    assert OneHotEncoder(["c"]).fit_transform(whole).take_batch(3)["c"].tolist() == [[1, 0], [0, 1], [1, 0]]


GENRES = [["comedy", "action", "sports"], ["animation", "comedy", "action"], [], ["documentary", "documentary"]]


def test_lists_of_categories() -> None:
    ds = trireme.data.from_arrow(pa.table({"genre": GENRES, "id": [0, 1, 2, 3]}))
    reference = preprocessing.MultiLabelBinarizer().fit_transform(GENRES)
    hot = MultiHotEncoder(["genre"])
    np.testing.assert_array_equal(hot.fit_transform(ds).take_batch(4)["genre"], reference)
    np.testing.assert_array_equal(MultiHotEncoder(["id"]).fit_transform(ds).take_batch(4)["id"], np.eye(4))
    # The memory of a slice of a list column has values of other rows before and after it.
    np.testing.assert_array_equal(
        hot.transform_batch(pa.table({"genre": GENRES}).slice(1, 2)).to_batches()[0]["genre"].storage.to_pylist(),
        reference[1:3],
    )
    encoder = OrdinalEncoder(["genre"])
    assert [row["genre"] for row in encoder.fit_transform(ds).take_all()] == [[2, 0, 4], [1, 2, 0], [], [3, 3]]
    assert encoder.transform_batch(pa.table({"genre": GENRES}).slice(1, 1))["genre"].to_pylist() == [[1, 2, 0]]
    whole = OrdinalEncoder(["genre"], encode_lists=False).fit_transform(ds).take_all()
    assert [row["genre"] for row in whole] == [2, 1, 0, 3]
    # Ties are in order of first appearance.
    few = MultiHotEncoder(["genre"], max_categories={"genre": 3}).fit(ds)
    assert few.stats_ == {"unique_values(genre)": {"action": 0, "comedy": 1, "documentary": 2}}


def test_categories_as_pandas_has_them() -> None:
    data = frame()
    found = Categorizer(["color"]).fit_transform(dataset(data)).to_pandas()["color"]
    assert found.tolist() == data["color"].tolist()
    table = Categorizer(["color"], {"color": pd.CategoricalDtype(["red", "blue"])}).fit_transform(dataset(data))
    assert table.to_pandas()["color"].isna().tolist() == (~data["color"].isin(["red", "blue"])).tolist()
    one = Categorizer(["c"]).fit(trireme.data.from_items([{"c": "b"}, {"c": "a"}, {"c": None}]))
    assert one.stats_ == {"c": ["a", "b"]}
    column = one.transform_batch(pd.DataFrame({"c": ["b", None]}))["c"]
    assert isinstance(column.dtype, pd.CategoricalDtype) and list(column.cat.categories) == ["a", "b"]


def test_missing_values_are_filled() -> None:
    data = pd.DataFrame(
        {"x": [1.0, np.nan, 3.0, 8.0], "i": pd.array([1, None, 1, 4], "Int64"), "s": ["a", None, "b", "b"]}
    )
    ds = dataset(data, parts=2)
    mean = SimpleImputer(["x", "i"]).fit_transform(ds).to_pandas()
    assert mean["x"].tolist() == [1, 4, 3, 8] and mean["i"].tolist() == [1, 2, 1, 4]
    often = SimpleImputer(["i", "s"], strategy="most_frequent").fit_transform(ds)
    assert often.to_pandas()["i"].tolist() == [1, 1, 1, 4] and often.to_pandas()["s"].tolist() == ["a", "b", "b", "b"]
    assert often.schema().field("i").type == pa.int64()
    constant = SimpleImputer(["s"], strategy="constant", fill_value="?")
    assert constant.fit_status() is Preprocessor.FitStatus.NOT_FITTABLE
    assert constant.transform(ds).to_pandas()["s"].tolist() == ["a", "?", "b", "b"]
    half = SimpleImputer(["i"], strategy="constant", fill_value=0.5).transform(ds)
    assert half.schema().field("i").type == pa.float64() and half.to_pandas()["i"].tolist() == [1, 0.5, 1, 4]
    with pytest.raises(ValueError, match="'s' is string, and 0 is not a valid value for it"):
        SimpleImputer(["s"], strategy="constant", fill_value=0).transform(ds)
    with pytest.raises(ValueError, match="'mean', 'most_frequent', 'constant'"):
        SimpleImputer(["x"], strategy="median")
    with pytest.raises(ValueError, match="needs a fill_value"):
        SimpleImputer(["x"], strategy="constant")


def test_columns_become_one_tensor() -> None:
    data = frame()
    ds = dataset(data)
    joined = Concatenator(["whole", "narrow", "flag"], output_column_name="features", dtype=np.float32).transform(ds)
    assert joined.columns() == ["far", "color", "text", "features"]
    features = joined.take_batch(len(data))["features"]
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, data[["whole", "narrow", "flag"]].to_numpy(np.float32))
    assert Concatenator(["whole", "narrow"]).transform(ds).take_batch(2)["concat_out"].dtype == np.float64

    tensors = trireme.data.from_numpy(np.arange(12.0).reshape(3, 2, 2)).add_column("n", lambda batch: np.arange(3))
    flat = Concatenator(["data", "n"], flatten=True).transform(tensors).take_batch(3)["concat_out"]
    assert flat.tolist() == [[0, 1, 2, 3, 0], [4, 5, 6, 7, 1], [8, 9, 10, 11, 2]]
    with pytest.raises(ValueError, match="'data' holds vectors; set flatten=True"):
        Concatenator(["data"]).transform(trireme.data.from_numpy(np.ones((3, 2))))
    with pytest.raises(ValueError, match="'color' is string, expected numbers"):
        Concatenator(["whole", "color"]).transform(ds)
    gap = {"a": pa.array([1, None])}
    with pytest.raises(ValueError, match=r"'a' has nulls.*dtype='float32'"):
        Concatenator(["a"]).transform_batch(gap)
    np.testing.assert_array_equal(
        Concatenator(["a"], dtype="float32").transform_batch(gap)["concat_out"], [[1], [np.nan]]
    )


def test_text_becomes_tokens_and_counts() -> None:
    data = frame()
    ds = dataset(data)
    tokens = Tokenizer(["text"], output_columns=["tokens"]).transform(ds).take_all()
    assert [row["tokens"] for row in tokens] == [text.split(" ") for text in data["text"]]
    assert Tokenizer(["t"]).transform_batch({"t": ["a  b", "", None]})["t"].tolist()[2] is None

    counts = CountVectorizer(["text"])
    found = counts.fit_transform(ds).take_batch(len(data))["text"]
    order = list(counts.stats_["token_counts(text)"])
    assert list(counts.stats_["token_counts(text)"].values()) == sorted(
        counts.stats_["token_counts(text)"].values(), reverse=True
    )
    reference = sklearn_text.CountVectorizer(vocabulary=order, token_pattern=r"\S+")
    np.testing.assert_array_equal(found, reference.transform(data["text"]).toarray())
    assert CountVectorizer(["text"], max_features=2).fit(ds).stats_ == {
        "token_counts(text)": {token: counts.stats_["token_counts(text)"][token] for token in order[:2]}
    }

    # The same indices as in Ray: sha256 of the token.
    hashed = HashingVectorizer(["text"], num_features=8).transform(ds).take_batch(len(data))["text"]
    expected = np.zeros((len(data), 8), int)
    for row, text in enumerate(data["text"]):
        for token in text.split(" "):
            expected[row, int(hashlib.sha256(token.encode()).hexdigest(), 16) % 8] += 1
    np.testing.assert_array_equal(hashed, expected)

    hasher = FeatureHasher(["I", "like", "dislike", "Python"], num_features=8, output_column="hashed")
    batch = {"I": [1, 1], "like": [1, 0], "dislike": [0, 1], "Python": [1, 1]}  # indices 4, 7, 7, 3
    assert hasher.transform_batch(batch)["hashed"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0, 0, 1]]
    with pytest.raises(ValueError, match="'text' has nulls"):
        HashingVectorizer(["text"], 4).transform_batch({"text": ["a", None]})
    with pytest.raises(ValueError, match="'n' is int64, expected text"):
        Tokenizer(["n"]).transform_batch({"n": [1]})


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("include_lowest", [True, False])
def test_bins_are_those_of_pandas(right: bool, include_lowest: bool) -> None:
    data = frame()[["narrow", "whole"]].astype(np.float64)
    data.iloc[3, 0] = np.nan
    options: dict[str, Any] = {"right": right, "include_lowest": include_lowest}
    edges = [-2.0, 0.0, 1.0, 12.0]
    expected = data.apply(lambda column: pd.cut(column, edges, labels=False, **options))
    custom = CustomKBinsDiscretizer(["narrow", "whole"], edges, **options).transform(dataset(data))
    np.testing.assert_array_equal(numbers(custom, ["narrow", "whole"]), expected.to_numpy(np.float64))
    uniform = UniformKBinsDiscretizer(["narrow", "whole"], {"narrow": 4, "whole": 7}, **options)
    binned = uniform.fit_transform(dataset(data))
    assert binned.schema().field("whole").type == pa.int64()
    np.testing.assert_array_equal(numbers(binned, ["whole"])[:, 0], pd.cut(data["whole"], 7, labels=False, **options))
    np.testing.assert_array_equal(numbers(binned, ["narrow"])[:, 0], pd.cut(data["narrow"], 4, labels=False, **options))


def test_bins_have_names_and_edges_that_make_sense() -> None:
    named = CustomKBinsDiscretizer(["x"], [0, 1, 2], dtypes={"x": pd.CategoricalDtype(["low", "high"])})
    assert named.transform_batch(pd.DataFrame({"x": [0.5, 2.0, 3.0]}))["x"].astype(object).tolist()[:2] == [
        "low",
        "high",
    ]
    with pytest.raises(ValueError, match="3 names for 2 bins"):
        CustomKBinsDiscretizer(["x"], [0, 1, 2], dtypes={"x": ["a", "b", "c"]}).transform_batch({"x": [1.0]})
    with pytest.raises(ValueError, match="duplicates='drop'"):
        CustomKBinsDiscretizer(["x"], [0, 1, 1])
    assert CustomKBinsDiscretizer(["x"], [0, 1, 1], duplicates="drop").transform_batch({"x": [1.0]})["x"].tolist() == [
        0
    ]
    with pytest.raises(ValueError, match="in ascending order"):
        CustomKBinsDiscretizer(["x"], [1, 0])
    with pytest.raises(ValueError, match="no entry for 'y'"):
        UniformKBinsDiscretizer(["x", "y"], {"x": 3})
    same = UniformKBinsDiscretizer(["x"], 3).fit_transform(trireme.data.from_items([{"x": 5.0}] * 3))
    assert [row["x"] for row in same.take_all()] == pd.cut(pd.Series([5.0] * 3), 3, labels=False).tolist()


def shifted(batch: pd.DataFrame) -> pd.DataFrame:
    return batch.assign(whole=batch["whole"] + 100)


def test_a_chain_fits_each_to_what_comes_before() -> None:
    data = frame()
    chain = Chain(
        BatchMapper(shifted, batch_format="pandas"),
        SimpleImputer(["far"]),
        StandardScaler(["far", "whole"]),
        OneHotEncoder(["color"]),
        Concatenator(["far", "whole", "color"], dtype="float32", flatten=True),
        LabelEncoder("text"),
    )
    assert chain.fit_status() is Preprocessor.FitStatus.NOT_FITTED
    with pytest.raises(PreprocessorNotFittedException, match=r"has not been fitted.*fit_transform"):
        chain.transform(dataset(data))
    made = chain.fit_transform(dataset(data))
    assert chain.fit_status() is Preprocessor.FitStatus.FITTED
    scaled = preprocessing.StandardScaler().fit_transform(data[["far", "whole"]])
    hot = preprocessing.OneHotEncoder(sparse_output=False).fit_transform(data[["color"]])
    batch = made.take_batch(len(data))
    assert list(batch) == ["narrow", "flag", "text", "concat_out"]
    np.testing.assert_allclose(batch["concat_out"], np.hstack([scaled, hot]), rtol=1e-5, atol=1e-5)
    by_hand = chain.transform_batch(data.iloc[:10])
    np.testing.assert_array_equal(np.stack(by_hand["concat_out"]), batch["concat_out"][:10])
    assert Chain(Normalizer(["far"])).fit_status() is Preprocessor.FitStatus.NOT_FITTABLE
    half = Chain(StandardScaler(["far"]).fit(dataset(data)), MinMaxScaler(["far"]))
    assert half.fit_status() is Preprocessor.FitStatus.PARTIALLY_FITTED
    with pytest.raises(ValueError, match="expected preprocessors"):
        Chain(StandardScaler)  # type: ignore[arg-type]


def upper(text: str) -> list[str]:
    return text.upper().split(" ")


def test_functions_of_the_user() -> None:
    data = frame()
    tokenizer = Tokenizer(["text"], tokenization_fn=upper)
    tokens = [row["text"] for row in tokenizer.transform(dataset(data)).take_all()]
    assert tokens == [upper(text) for text in data["text"]]
    counts = CountVectorizer(["text"], tokenization_fn=upper).fit(dataset(data))
    assert set(counts.stats_["token_counts(text)"]) == {"THE", "CAT", "SAT", "ON", "MAT"}
    for preprocessor in (tokenizer, BatchMapper(shifted, "pandas"), Chain(tokenizer, StandardScaler(["far"]))):
        with pytest.raises(TypeError, match=r"cannot be written as JSON.*in your own module"):
            preprocessor.serialize()
    with pytest.raises(ValueError, match="batch_format='csv'"):
        BatchMapper(shifted, batch_format="csv")


class Clip(Preprocessor):
    """A user's preprocessor."""

    def __init__(self, column: str, quantile: float = 0.9) -> None:
        super().__init__()
        self.column = column
        self.quantile = quantile

    def _fit(self, ds: Dataset) -> None:
        self.high_ = float(np.quantile(ds.to_pandas()[self.column], self.quantile))

    def _transform_numpy(self, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, self.column: np.minimum(data[self.column], self.high_)}


class ClipFrame(Clip):
    _transform_numpy = Preprocessor._transform_numpy

    def _transform_pandas(self, data: pd.DataFrame) -> pd.DataFrame:
        return data.assign(**{self.column: data[self.column].clip(upper=self.high_)})


@pytest.mark.parametrize("kind", [Clip, ClipFrame])
def test_a_preprocessor_of_the_user(kind: type[Clip]) -> None:
    data = frame()
    clip = kind("far", quantile=0.5)
    with pytest.raises(PreprocessorNotFittedException):
        clip.transform_batch(data)
    expected = np.minimum(data["far"], data["far"].median())
    np.testing.assert_allclose(clip.fit_transform(dataset(data)).to_pandas()["far"], expected)
    again = Preprocessor.deserialize(clip.serialize())
    assert isinstance(again, kind) and again.quantile == 0.5
    np.testing.assert_allclose(again.transform_batch(data)["far"], expected)


FITTED: list[Any] = [
    StandardScaler(["far", "whole"]),
    MinMaxScaler(["far"], output_columns=["scaled"]),
    MaxAbsScaler(["narrow"]),
    RobustScaler(["far"], (0.1, 0.9)),
    Normalizer(["far", "narrow"], norm="max"),
    PowerTransformer(["narrow"], 0.5),
    OneHotEncoder(["color", "whole", "flag"], max_categories={"color": 2}),
    OrdinalEncoder(["color", "flag"]),
    MultiHotEncoder(["color"]),
    LabelEncoder("color", output_column="label"),
    Categorizer(["color"]),
    SimpleImputer(["far"]),
    SimpleImputer(["color"], strategy="most_frequent"),
    SimpleImputer(["color"], strategy="constant", fill_value="x"),
    Concatenator(["far", "narrow"], dtype=np.float32),
    Tokenizer(["text"]),
    CountVectorizer(["text"], max_features=3),
    HashingVectorizer(["text"], 5),
    FeatureHasher(["whole"], 3, "hashed"),
    UniformKBinsDiscretizer(["far"], 3),
    CustomKBinsDiscretizer(["far"], {"far": [0, 1e6, 2e6]}, dtypes={"far": ["low", "high"]}),
    Chain(StandardScaler(["far"]), OneHotEncoder(["color"]), Concatenator(["far", "color"], flatten=True)),
]


@pytest.mark.parametrize("preprocessor", FITTED, ids=lambda item: type(item).__name__)
def test_all_are_written_as_json_and_read_again(preprocessor: Any, tmp_path: Path) -> None:
    data = frame(60)
    before = Preprocessor.deserialize(preprocessor.serialize())  # not fitted yet
    assert repr(before) == repr(preprocessor) and before.fit_status() == preprocessor.fit_status()
    expected = preprocessor.fit(dataset(data)).transform_batch(pa.Table.from_pandas(data))
    json.loads(preprocessor.serialize())
    preprocessor.save(tmp_path / "checkpoint")
    again = Preprocessor.load(tmp_path / "checkpoint")
    assert type(again) is type(preprocessor) and again.stats_ == preprocessor.stats_
    assert again.fit_status() == preprocessor.fit_status() and repr(again) == repr(preprocessor)
    sent = pickle.loads(pickle.dumps(preprocessor))  # as when a dataset is sent to workers
    for one in (again, sent):
        assert one.transform_batch(pa.Table.from_pandas(data)).equals(expected)


def test_categories_of_every_type_survive_json() -> None:
    columns = {
        "bytes": pa.array([b"\xff", b"a"]),
        "day": pa.array([datetime.date(2026, 1, 2), datetime.date(2025, 1, 2)]),
        "when": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.datetime(2025, 1, 2)]),
        "money": pa.array([Decimal("1.50"), Decimal("-2.25")]),
        "number": pa.array([2.5, -1.0]),
        "flag": pa.array([True, False]),
        "lists": pa.array([[1, 2], [1]]),
    }
    encoder = OrdinalEncoder(list(columns), encode_lists=False).fit(trireme.data.from_arrow(pa.table(columns)))
    again = Preprocessor.deserialize(encoder.serialize())
    assert again.stats_ == encoder.stats_
    assert again.transform_batch(pa.table(columns)).to_pydict() == {name: [1, 0] for name in columns}


def test_json_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"was not written by Preprocessor\.serialize"):
        Preprocessor.deserialize("gASVWQ")
    with pytest.raises(ValueError, match="was not written by"):
        Preprocessor.deserialize('{"a": 1}')
    with pytest.raises(ValueError, match=r"no preprocessor named 'os\.system'.*import its module"):
        Preprocessor.deserialize('{"preprocessor": "os.system", "arguments": {}, "fitted": null}')
    with pytest.raises(FileNotFoundError, match=r"preprocessor\.json does not exist"):
        Preprocessor.load(tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ds: StandardScaler(["nowhere"]).fit(ds), "StandardScaler: no column named 'nowhere'; .*far, narrow"),
        (
            lambda ds: StandardScaler(["color"]).fit(ds),
            "StandardScaler: column 'color' is string, expected numbers",
        ),
        (lambda ds: Concatenator(["nowhere"]).transform(ds), "Concatenator: no column named 'nowhere'"),
        (lambda ds: OrdinalEncoder(["nowhere"]).fit(ds), "OrdinalEncoder: no column named 'nowhere'"),
        (lambda ds: StandardScaler("far"), "columns='far': expected a list"),
        (lambda ds: StandardScaler([]), "expected a list of column names"),
        (lambda ds: StandardScaler(["far", "far"]), "twice"),
        (lambda ds: StandardScaler(["far"], output_columns=["a", "b"]), "2 names for 1 column"),
        (lambda ds: OneHotEncoder(["color"], max_categories={"far": 2}), "max_categories names 'far'"),
        (lambda ds: Normalizer(["far"], norm="l3"), "'l1', 'l2', 'max'"),
        (lambda ds: PowerTransformer(["far"], 1, method="log"), "'yeo-johnson', 'box-cox'"),
        (lambda ds: RobustScaler(["far"], (0.9, 0.1)), "the smaller one first"),
        (lambda ds: HashingVectorizer(["text"], 0), "num_features=0"),
        (lambda ds: StandardScaler(["far"]).fit(ds.limit(0)), "'far' has no values to learn from"),
        (lambda ds: OneHotEncoder(["color"]).fit(ds.limit(0)), "'color' has no values to learn from"),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(dataset(frame(20)))


def test_missing_and_infinite_values_are_errors_where_not_allowed() -> None:
    ds = trireme.data.from_arrow(pa.table({"c": ["a", None], "x": [1.0, float("inf")], "ok": ["a", "b"]}))
    for encoder in (OrdinalEncoder, OneHotEncoder, MultiHotEncoder):
        with pytest.raises(ValueError, match=f"{encoder.__name__}: column 'c' has nulls: fill them first"):
            encoder(["c"]).fit(ds)
    with pytest.raises(ValueError, match="'x' has infinite values"):
        StandardScaler(["x"]).fit(ds)
    encoder = OrdinalEncoder(["ok"]).fit(ds)
    with pytest.raises(ValueError, match="'ok' has nulls"):
        encoder.transform_batch({"ok": ["a", None]})
    late = pa.table({"ok": ["a", "b", None]})
    with pytest.raises(DataError, match=r"\S+: OrdinalEncoder: column 'ok' has nulls"):  # the fragment, and the error
        encoder.transform(trireme.data.from_arrow(late)).take_all()
    with pytest.raises(ValueError, match=r"'ok' is int64, but it was fitted to categories such as 'a'"):
        encoder.transform_batch({"ok": [1]})


def test_workers_read_what_is_transformed_and_the_checkpoint_keeps_the_preprocessor(run_config: RunConfig) -> None:
    data = frame(90)
    chain = Chain(
        StandardScaler(["far", "whole"]),
        OneHotEncoder(["color"]),
        Concatenator(["far", "whole", "color"], "features", dtype="float32", flatten=True),
    )
    ds = chain.fit_transform(dataset(data)).select_columns(["features"])

    def train() -> None:
        import tempfile

        import trireme

        batches = list(trireme.get_dataset_shard("train").iter_batches(batch_size=10))
        found = [row.tolist() for batch in batches for row in batch["features"]]
        with tempfile.TemporaryDirectory() as folder:
            trireme.report({"rows": found}, checkpoint=trireme.Checkpoint.from_directory(folder))

    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=run_config,
        datasets={"train": ds},
        metadata={"preprocessor": chain.serialize()},
    )
    result = trainer.fit()
    assert result.checkpoint is not None and result.metrics is not None
    again = Preprocessor.deserialize(result.checkpoint.get_metadata()["preprocessor"])
    expected = [row.tolist() for row in again.transform_batch(data)["features"]]
    assert len(result.metrics["rows"]) == 45 and all(row in expected for row in result.metrics["rows"])


def test_fitting_again_warns_and_forgets() -> None:
    scaler = StandardScaler(["x"])
    assert scaler.fit_status() is Preprocessor.FitStatus.NOT_FITTED
    scaler.fit(trireme.data.from_items([{"x": 1.0}, {"x": 3.0}]))
    assert scaler.stats_ == {"mean(x)": 2.0, "std(x)": 1.0}
    with pytest.warns(UserWarning, match="was already fitted"):
        scaler.fit(trireme.data.from_items([{"x": 10.0}]))
    assert scaler.stats_ == {"mean(x)": 10.0, "std(x)": 0.0}
    chain = Chain(Chain(scaler, MinMaxScaler(["x"])))
    with pytest.warns(UserWarning, match="was already fitted") as warned:
        chain.fit(trireme.data.from_items([{"x": 1.0}, {"x": 3.0}]))
    assert len(warned) == 1 and chain.transform_batch({"x": [1.0, 3.0]})["x"].tolist() == [0, 1]
    encoder = OrdinalEncoder(["x"]).fit(trireme.data.from_items([{"x": "b"}]))
    assert encoder.transform_batch({"x": ["b"]})["x"].tolist() == [0]
    with pytest.warns(UserWarning, match="was already fitted"):
        encoder.fit(trireme.data.from_items([{"x": "a"}, {"x": "b"}]))
    assert encoder.transform_batch({"x": ["b"]})["x"].tolist() == [1]


def test_batches_are_not_datasets() -> None:
    with pytest.raises(TypeError, match=r"fit\(\) takes a trireme\.data Dataset, not DataFrame.*transform_batch"):
        StandardScaler(["far"]).fit(frame())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a dict of columns.*got list"):
        Normalizer(["far"]).transform_batch([1, 2])


@pytest.mark.torch
def test_torchvision_transforms_are_called_with_tensors_or_arrays() -> None:
    torch = pytest.importorskip("torch")
    ds = trireme.data.from_numpy(np.arange(24, dtype=np.uint8).reshape(3, 2, 4))

    def halved(image: Any) -> Any:
        assert isinstance(image, torch.Tensor)
        return image.float() / 2

    def of_array(image: Any) -> Any:
        if not isinstance(image, np.ndarray):
            raise TypeError("arrays only")
        return torch.from_numpy(image.T.copy())

    each = TorchVisionPreprocessor(["data"], halved).transform(ds).take_batch(3)["data"]
    assert each.shape == (3, 2, 4) and each.dtype == np.float32 and each[2, 1, 3] == 11.5
    together = TorchVisionPreprocessor(["data"], halved, batched=True, output_columns=["half"]).transform(ds)
    assert together.columns() == ["data", "half"]
    turned = TorchVisionPreprocessor(["data"], of_array).transform_batch(ds.take_batch(3))["data"]
    assert turned.shape == (3, 4, 2)
