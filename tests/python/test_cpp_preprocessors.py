"""Preprocessors in C++ and Python: fitted in one language, applied in the other, compared value by value."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trireme.data
from cpp_programs import BUILD, EXAMPLES, checked, result_of, run
from trireme.data.preprocessors import (
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
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    UniformKBinsDiscretizer,
)

PROGRAM = BUILD / "tests/preprocessors_program"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")

KINDS = {"far": "float", "gaps": "float", "whole": "int", "holes": "int", "flag": "bool", "color": "text"} | {
    "maybe": "text",
    "text": "text",
    "tags": "list",
}


def columns(rows: int = 200) -> dict[str, list[Any]]:
    chance = random.Random(7)
    words = ["the", "cat", "sat", "on", "mat"]
    return {
        "far": [chance.gauss(1e6, 0.5) for _ in range(rows)],
        "gaps": [None if i % 7 == 0 else math.nan if i % 11 == 0 else chance.gauss(0, 3) for i in range(rows)],
        "whole": [chance.randrange(-5, 20) for _ in range(rows)],
        "holes": [None if i % 5 == 0 else chance.randrange(4) for i in range(rows)],
        "flag": [chance.random() < 0.3 for _ in range(rows)],
        "color": [chance.choice(["red", "green", "blue", "Äpfel"]) for _ in range(rows)],
        "maybe": [None if i % 4 == 0 else chance.choice(["x", "y", "y"]) for i in range(rows)],
        "text": [" ".join(chance.choice(words) for _ in range(6)) for _ in range(rows)],
        "tags": [[chance.choice(words) for _ in range(i % 4)] for i in range(rows)],
    }


def table(values: dict[str, list[Any]]) -> pa.Table:
    types = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "text": pa.string()}
    return pa.table({name: pa.array(given, types.get(KINDS.get(name, ""))) for name, given in values.items()})


def written(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(value) if isinstance(value, list) else str(value)


def put(folder: Path, preprocessor: Any, values: dict[str, list[Any]]) -> Path:
    preprocessor.save(folder)
    lines = ["\t".join([name, KINDS.get(name, "int"), *map(written, given)]) for name, given in values.items()]
    (folder / "rows.txt").write_text("\n".join(lines) + "\n")
    return folder


def flat(value: Any) -> Any:
    return value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value


def assert_same(found: Any, expected: Any, within: float = 1e-12) -> None:
    """Compares numbers to the last few bits; NaN equals NaN, null equals null."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_same(found[name], value, within)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, within)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    elif isinstance(expected, float):
        assert isinstance(found, (int, float)) and math.isclose(found, expected, rel_tol=within)
    else:
        assert found == expected and type(found) is type(expected)


ALL: list[Any] = [
    StandardScaler(["far", "gaps", "whole", "holes", "flag"]),
    StandardScaler(["whole", "far"], output_columns=["far", "made"]),
    MinMaxScaler(["far", "gaps"], output_columns=["a", "b"]),
    MaxAbsScaler(["gaps", "whole"]),
    RobustScaler(["far", "gaps", "whole"], (0.1, 0.8)),
    Normalizer(["far", "whole"], norm="l1"),
    Normalizer(["far", "gaps"]),
    Normalizer(["gaps", "whole"], norm="max"),
    PowerTransformer(["gaps", "whole"], 0.5),
    PowerTransformer(["gaps"], 0),
    PowerTransformer(["far"], -1.5, method="box-cox"),
    SimpleImputer(["gaps", "holes", "whole"]),
    SimpleImputer(["gaps", "holes", "maybe", "tags"], strategy="most_frequent"),
    SimpleImputer(["maybe"], strategy="constant", fill_value="?"),
    SimpleImputer(["holes", "gaps"], strategy="constant", fill_value=0.5),
    SimpleImputer(["holes"], strategy="constant", fill_value=7),
    OrdinalEncoder(["color", "whole", "flag", "tags", "far"]),
    OrdinalEncoder(["tags"], encode_lists=False),
    OneHotEncoder(["color", "whole", "flag", "tags"], max_categories={"color": 2, "whole": 3}),
    MultiHotEncoder(["tags", "color"], output_columns=["hot", "color"]),
    LabelEncoder("color", output_column="number"),
    LabelEncoder("whole"),
    Categorizer(["color", "maybe"], {"color": ["red", "blue"]}),
    Concatenator(["whole", "far", "flag"]),
    Concatenator(["whole", "flag"], output_column_name="v"),
    Concatenator(["far", "gaps", "holes"], dtype="float32"),
    Tokenizer(["text", "maybe"], output_columns=["tokens", "maybe"]),
    CountVectorizer(["text", "color"], max_features=3),
    HashingVectorizer(["text"], 5),
    FeatureHasher(["whole", "flag"], 3, "hashed"),
    FeatureHasher(["whole", "far"], 2, "hashed"),
    UniformKBinsDiscretizer(["far", "gaps"], {"far": 3, "gaps": 5}, right=False),
    UniformKBinsDiscretizer(["whole"], 4, include_lowest=True),
    CustomKBinsDiscretizer(["gaps"], [-3, 0, 0, 2], duplicates="drop", dtypes={"gaps": ["low", "high"]}),
    Chain(
        SimpleImputer(["gaps"]),
        StandardScaler(["gaps", "far"]),
        OneHotEncoder(["color"]),
        Concatenator(["gaps", "far", "color"], output_column_name="features", dtype="float32", flatten=True),
        LabelEncoder("text"),
    ),
]


@pytest.mark.parametrize("preprocessor", ALL, ids=lambda item: type(item).__name__)
def test_both_languages_learn_and_do_the_same(preprocessor: Any, tmp_path: Path) -> None:
    values = columns()
    ds = trireme.data.from_arrow(table(values)).repartition(3)
    again = Preprocessor.deserialize(preprocessor.serialize())

    # Fitted in C++, read by Python.
    folder = put(tmp_path / "unfitted", again, values)
    checked(PROGRAM, "fit", folder)
    by_cpp = Preprocessor.load(folder / "fitted")
    again.fit(ds)
    assert by_cpp.fit_status() == again.fit_status() and repr(by_cpp) == repr(again)
    assert checked(PROGRAM, "describe", folder) == repr(by_cpp) + "\n"
    # The mean of "far" is two million deviations: the partition of the rows changes the last digits of its deviation.
    assert_same(json.loads(by_cpp.serialize()), json.loads(again.serialize()), within=1e-11)

    # Fitted in Python, applied by C++ to more rows.
    seen = {name: [*given, *columns(20)[name][:10]] for name, given in values.items()}
    seen["color"][-1] = "pink"
    expected = again.transform(trireme.data.from_arrow(table(seen))).take_all()
    expected = [{name: flat(value) for name, value in row.items()} for row in expected]
    lines = checked(PROGRAM, "transform", put(tmp_path / "fitted", again, seen)).splitlines()
    *rows, batch = [json.loads(line) for line in lines]
    assert_same(rows, expected)
    assert list(batch) == list(expected[0])


def test_labels_come_back(tmp_path: Path) -> None:
    values = columns()
    labels = LabelEncoder("color", output_column="number").fit(trireme.data.from_arrow(table(values)))
    folder = put(tmp_path / "back", labels, {"number": [3, 0, None]})
    assert json.loads(checked(PROGRAM, "back", folder)) == {"number": [3, 0, None], "color": ["Äpfel", "blue", None]}
    done = run(PROGRAM, "back", put(tmp_path / "wrong", labels, {"number": [4]}))
    assert done.returncode == 1 and "'number' has values other than the label numbers 0 to 3" in done.stdout


def said(tmp_path: Path, text: str, rows: str = "x\tint\t1\n", way: str = "transform") -> str:
    (tmp_path / "preprocessor.json").write_text(text)
    (tmp_path / "rows.txt").write_text(rows)
    done = run(PROGRAM, way, tmp_path)
    assert done.returncode == 1
    return done.stdout


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    scaler = StandardScaler(["x"])
    assert said(tmp_path, scaler.serialize()) == (
        "StandardScaler(columns=['x'], output_columns=['x']) has not been fitted: call fit(ds) before transform(), or "
        "fit_transform(ds)\n"
    )
    message = "StandardScaler: no column named 'x'; the columns are y, z\n"
    assert said(tmp_path, scaler.serialize(), "y\tint\t1\nz\tint\t1\n", "fit") == message
    assert "column 'x' is large_string, expected numbers" in said(tmp_path, scaler.serialize(), "x\ttext\ta\n", "fit")
    assert "has no values to learn from" in said(tmp_path, scaler.serialize(), "x\tfloat\tnan\n", "fit")
    assert "'x' has infinite values" in said(tmp_path, scaler.serialize(), "x\tfloat\tinf\n", "fit")
    assert "OneHotEncoder: column 'x' has nulls: fill them first" in said(
        tmp_path, OneHotEncoder(["x"]).serialize(), "x\ttext\t\\N\n", "fit"
    )
    money = OrdinalEncoder(["x"]).fit(trireme.data.from_arrow(pa.table({"x": [Decimal("1.50")]})))
    assert "'x' is int64, but it was fitted to categories such as 1.50 (decimal)" in said(tmp_path, money.serialize())
    assert "was not written by Preprocessor::serialize()" in said(tmp_path, "gASVWQ")
    assert "no preprocessor named 'os.system' in C++" in said(
        tmp_path, '{"preprocessor": "os.system", "arguments": {}, "fitted": null}'
    )
    wrong = scaler.serialize().replace('"fitted": null', '"fitted": {"stats_": {"mean(x)": "a"}}')
    assert "invalid statistics of StandardScaler: mean(x) is 'a'" in said(tmp_path, wrong)


def test_the_example_keeps_its_preprocessor_with_the_checkpoint() -> None:
    assert checked(EXAMPLES / "example_data_preprocessors").splitlines()[-1] == "0 2 "
    checkpoint = result_of("data_preprocessors").checkpoint
    assert checkpoint is not None
    loaded = Preprocessor.deserialize(checkpoint.to_dict()["preprocessor"])
    assert loaded.transform_batch({"age": [30.0], "town": ["Tyre"]})["features"].tolist() == [[0, 2]]
