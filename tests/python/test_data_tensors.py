from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from trireme.data import DataError  # noqa: E402
from trireme.data._promotion import conform  # noqa: E402
from trireme.data._tensors import (  # noqa: E402
    RaggedTensorType,
    array_of,
    batch_of,
    batch_of_rows,
    numpy_of,
    plain_type,
    rows_of,
)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5),
        np.arange(6, dtype=np.float16).reshape(3, 2),
        np.arange(24, dtype=np.int8).reshape(2, 3, 4),
        np.array([[True, False], [False, True], [True, True]]),
        np.array(["2020-01-01", "2021-06-01"], "datetime64[ns]"),
        np.zeros((0, 3), np.float32),
        np.ones((2, 0)),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(12).reshape(3, 4).T,
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_numpy_goes_through_arrow_unchanged(values: Any) -> None:
    back = numpy_of(array_of(values, "x"), "x")
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)


def test_numbers_are_not_copied() -> None:
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert np.shares_memory(numpy_of(array_of(vectors)), vectors)
    assert np.shares_memory(numpy_of(array_of(vectors).slice(1, 2)), vectors)


def test_byte_order_of_other_machines() -> None:
    np.testing.assert_array_equal(numpy_of(array_of(np.array([1.5, 2], ">f4"))), np.array([1.5, 2], "f4"))


def test_nulls_are_nan_among_numbers_and_none_among_objects() -> None:
    np.testing.assert_array_equal(numpy_of(array_of([1, None, 3])), [1.0, np.nan, 3.0])
    assert numpy_of(array_of(["a", None])).tolist() == ["a", None]
    vectors = numpy_of(pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)))
    assert vectors[1] is None
    np.testing.assert_array_equal(vectors[0], [1, 2])


def test_tensors_of_one_shape_and_of_many() -> None:
    same = array_of([np.ones((2, 2)), np.zeros((2, 2))])
    assert same.type == pa.fixed_shape_tensor(pa.float64(), (2, 2))
    assert numpy_of(same).shape == (2, 2, 2)

    ragged = array_of([np.ones((2, 1)), None, np.zeros((3, 1), np.int8)])
    assert isinstance(ragged.type, RaggedTensorType)
    for column in (ragged, pickle.loads(pickle.dumps(ragged))):
        shapes = [None if value is None else value.shape for value in numpy_of(column)]
        assert shapes == [(2, 1), None, (3, 1)]
    np.testing.assert_array_equal(numpy_of(ragged.slice(2))[0], np.zeros((3, 1)))


def test_vectors_of_many_lengths_are_lists() -> None:
    column = array_of([np.ones(2, np.int32), np.zeros(3, np.int32)])
    assert column.type == pa.list_(pa.int32())
    assert [len(row) for row in numpy_of(column)] == [2, 3]
    # Values of a list column become a list column again, whatever their lengths in this batch.
    equal = numpy_of(pa.array([[1, 2], [3, 4]], pa.list_(pa.int64())))
    assert array_of(equal).type == pa.list_(pa.int64())


def test_ragged_tensors_survive_a_file(tmp_path: Any) -> None:
    table = pa.table({"x": array_of([np.ones((2, 1)), np.zeros((3, 1))])})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    back = pa.ipc.open_file(str(tmp_path / "t.arrow")).read_all()
    assert isinstance(back.schema.field("x").type, RaggedTensorType)


def test_permuted_and_nested_fixed_shapes() -> None:
    storage = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int32(), 6))
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
    np.testing.assert_array_equal(
        numpy_of(pa.ExtensionArray.from_storage(kind, storage)), np.arange(1, 7).reshape(1, 2, 3).transpose(0, 2, 1)
    )
    nested = pa.array([[[1, 2], [3, 4], [5, 6]]], pa.list_(pa.list_(pa.int32(), 2), 3))
    np.testing.assert_array_equal(numpy_of(nested), np.arange(1, 7).reshape(1, 3, 2))


@pytest.mark.torch
def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    batch = batch_of(
        {
            "whole": torch.ones(2, 3, requires_grad=True),
            "each": [torch.zeros(2), torch.ones(2)],
            "scalars": [torch.tensor(1), torch.tensor(2)],
            "brain": torch.ones(2, dtype=torch.bfloat16),
        }
    )
    assert numpy_of(batch.column("whole")).shape == (2, 3)
    assert numpy_of(batch.column("each")).tolist() == [[0, 0], [1, 1]]
    assert numpy_of(batch.column("scalars")).tolist() == [1, 2]
    assert numpy_of(batch.column("brain")).dtype == np.float32


def test_rows() -> None:
    batch = batch_of({"n": [1, 2], "t": np.arange(4).reshape(2, 2), "s": ["a", None], "l": [[1], [2, 3]]})
    rows = rows_of(batch)
    assert [row["n"] for row in rows] == [1, 2]
    assert rows[1]["s"] is None and rows[1]["l"] == [2, 3]
    np.testing.assert_array_equal(rows[1]["t"], [2, 3])
    assert batch_of_rows(rows).schema == batch.schema
    assert batch_of_rows([{"a": 1}, {"b": 2}]).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1, "a"]}, r"column 'x': row 1 is 'a' \(str\) and row 0 is 1 \(int\)"),
        ({"x": [None, object()]}, r"column 'x': row 1 is <object .* which Arrow cannot hold"),
        ({"x": "abc"}, r"column 'x' is 'abc' \(str\): expected an array or a list"),
        ({"x": np.ones(2, complex)}, "column 'x': Arrow cannot hold it"),
        ({"x": [1], "y": [1, 2]}, "column 'y' has 2 rows and column 'x' has 1"),
        ({"x": np.float32(1)}, "column 'x'"),
        ({1: [1]}, "column 1: column names must be strings"),
    ],
    ids=["mixed", "object", "text", "complex", "lengths", "scalar", "name"],
)
def test_what_cannot_be_a_column(columns: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        batch_of(columns)


def test_rows_that_are_not_dicts() -> None:
    with pytest.raises(DataError, match=r"row 1 is 5 \(int\): expected a dict"):
        batch_of_rows([{"a": 1}, 5])  # type: ignore[list-item]


def test_conforming_loses_nothing() -> None:
    schema = pa.schema([("n", pa.float64()), ("t", pa.list_(pa.int64())), ("missing", pa.string())])
    batch = conform(batch_of({"t": np.arange(4).reshape(2, 2), "n": [1, 2]}), schema, "here")
    assert batch.schema == schema
    assert batch.to_pylist()[1] == {"n": 2.0, "t": [2, 3], "missing": None}

    ragged = array_of([np.ones((2, 1)), np.zeros((3, 1))])
    fixed = batch_of({"t": np.zeros((2, 4, 4))})
    conformed = conform(fixed, pa.schema([("t", ragged.type)]), "here")
    assert numpy_of(conformed.column("t"))[0].shape == (4, 4)

    with pytest.raises(DataError, match="here: column 'n' is string in row 0, and int64 in the others"):
        conform(batch_of({"n": ["x"]}), pa.schema([("n", pa.int64())]), "here")
    with pytest.raises(DataError, match="here: column 'y' does not exist in the others"):
        conform(batch_of({"y": [1]}), pa.schema([("n", pa.int64())]), "here")


def test_newer_layouts_become_plain() -> None:
    kind = pa.struct([("v", pa.string_view()), ("l", pa.list_(pa.binary_view())), ("d", pa.int8())])
    assert plain_type(kind) == pa.struct([("v", pa.string()), ("l", pa.list_(pa.binary())), ("d", pa.int8())])
