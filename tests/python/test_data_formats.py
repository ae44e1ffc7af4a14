from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trireme.data
from trireme.data import DataError
from trireme.data._formats import (
    ArrowBatchCollateFn,
    LazyBatch,
    NumpyBatchCollateFn,
    PandasBatchCollateFn,
    check_collate,
    collated,
    in_format,
    rows,
)
from trireme.data._jax_batches import jax_batches, to_jax_batch
from trireme.data._tensors import batch_of
from trireme.data._tf_batches import to_tf_batch


def mixed() -> pa.RecordBatch:
    return batch_of(
        {
            "number": [1, 2, 3],
            "gap": [1.5, None, 2.5],
            "text": ["a", None, "c"],
            "image": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
            "list": [[1], [], [2, 3]],
            "ragged": [np.ones((1, 2)), np.ones((2, 1)), np.ones((2, 2))],
        }
    )


def test_numpy_batches_are_dicts_of_arrays_and_take_those_that_are_there() -> None:
    ready = np.array([7, 8, 9])
    found = in_format((mixed(), {"number": ready}), "numpy")
    assert list(found) == ["number", "gap", "text", "image", "list", "ragged"]
    assert found["number"] is ready
    np.testing.assert_array_equal(found["gap"], [1.5, np.nan, 2.5])
    assert found["text"].tolist() == ["a", None, "c"]
    assert found["image"].shape == (3, 2, 2) and found["image"].dtype == np.uint8
    assert [row.tolist() for row in found["list"]] == [[1], [], [2, 3]]
    assert [row.shape for row in found["ragged"]] == [(1, 2), (2, 1), (2, 2)]
    assert in_format((mixed(), {}))["number"].tolist() == [1, 2, 3]  # the default


def test_pandas_batches_keep_a_tensor_in_each_row() -> None:
    frame = in_format((mixed(), {}), "pandas")
    assert list(frame.columns) == ["number", "gap", "text", "image", "list", "ragged"]
    assert frame["number"].dtype == np.int64 and frame["number"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(frame["image"][1], [[4, 5], [6, 7]])
    assert frame["ragged"][2].shape == (2, 2)
    assert frame["text"].isna().tolist() == [False, True, False]
    assert in_format((batch_of({"x": [1, 2]}), {}), "pandas").equals(pa.table({"x": [1, 2]}).to_pandas())


@pytest.mark.parametrize("batch_format", ["pyarrow", None])
def test_pyarrow_batches_are_tables_with_the_same_memory(batch_format: str | None) -> None:
    batch = mixed()
    table = in_format((batch, {}), batch_format)
    assert isinstance(table, pa.Table) and table.schema == batch.schema and table.num_rows == 3
    assert table["number"].chunk(0).buffers()[1].address == batch["number"].buffers()[1].address


def test_rows_are_dicts_of_python_values_and_tensors_arrays() -> None:
    found = list(rows((mixed(), {})))
    assert [row["text"] for row in found] == ["a", None, "c"]
    assert type(found[0]["number"]) is int and found[1]["gap"] is None and found[2]["list"] == [2, 3]
    np.testing.assert_array_equal(found[1]["image"], [[4, 5], [6, 7]])


def test_the_error_of_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'arrow'.*'default', 'numpy', 'pandas', 'pyarrow'"):
        in_format((mixed(), {}), "arrow")


def test_a_batch_of_the_core_is_made_one_of_pyarrow_only_where_that_is_needed() -> None:
    class Exported:
        """Like the core's batches."""

        def __init__(self) -> None:
            self.times = 0

        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            self.times += 1
            return mixed().__arrow_c_array__(requested_schema)

    exported = Exported()
    batch = LazyBatch(mixed().schema, exported)
    arrays = in_format((mixed(), {}), "numpy")
    assert list(in_format((batch, arrays), "numpy")) == list(arrays) and exported.times == 0
    assert in_format((batch, {"number": arrays["number"]}), "numpy")["text"].tolist() == ["a", None, "c"]
    assert in_format((batch, {}), "pyarrow").equals(pa.Table.from_batches([mixed()]))
    assert in_format((batch, {}), "pandas")["number"].tolist() == [row["number"] for row in rows((batch, {}))]
    assert exported.times == 1


def test_collate_functions_get_the_input_of_their_class() -> None:
    def of(base: type) -> Any:
        return type("Collate", (base,), {"__call__": lambda self, batch: type(batch).__name__})()

    batch = (mixed(), {})
    assert collated(batch, of(NumpyBatchCollateFn)) == "dict"
    assert collated(batch, of(ArrowBatchCollateFn)) == "Table"
    assert collated(batch, of(PandasBatchCollateFn)) == "DataFrame"
    assert collated(batch, lambda columns: sorted(columns)) == ["gap", "image", "list", "number", "ragged", "text"]


def test_collate_functions_that_cannot_be_called_are_refused() -> None:
    with pytest.raises(ValueError, match="collate_fn and dtypes are mutually exclusive"):
        check_collate(lambda batch: batch, "float32")
    for wrong in (3, NumpyBatchCollateFn):
        with pytest.raises(ValueError, match="expected a function"):
            check_collate(wrong, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("tensorflow", lambda batch: to_tf_batch(batch)),
        ("tensorflow", lambda batch: trireme.data.from_arrow(batch[0]).iterator().to_tf("number", "number")),
        ("jax", lambda batch: to_jax_batch(batch)),
    ],
)
def test_a_framework_that_is_not_there_is_named_with_how_to_get_it(
    module: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"pip install {module}"):
        call((batch_of({"number": [1]}), {}))


@pytest.mark.slow
def test_tensorflow_batches() -> None:
    tf = pytest.importorskip("tensorflow")
    batch = (mixed().select(["number", "image", "list"]), {})
    found = to_tf_batch(batch, dtypes={"image": tf.float16})
    assert found["number"].numpy().tolist() == [1, 2, 3]
    assert found["image"].dtype == tf.float16 and found["image"].shape == (3, 2, 2)
    assert found["list"].to_list() == [[1], [], [2, 3]]
    with pytest.raises(ValueError, match="dtypes: no column named 'x'"):
        to_tf_batch(batch, dtypes={"x": tf.int32})
    with pytest.raises(DataError, match="'number' is int64 and has 1 nulls"):
        to_tf_batch((batch_of({"number": [1, None]}), {}))


@pytest.mark.slow
def test_a_tensorflow_dataset() -> None:
    tf = pytest.importorskip("tensorflow")
    batch = mixed()
    iterator = trireme.data.from_arrow([batch, batch]).iterator()
    dataset = iterator.to_tf(["image", "list"], "number", batch_size=3)
    assert len(list(dataset)) == len(list(dataset)) == 2  # one epoch each
    features, label = next(iter(dataset))
    assert features["image"].shape == (3, 2, 2) and features["list"].to_list() == [[1], [], [2, 3]]
    assert label.numpy().tolist() == [1, 2, 3]
    spec = tf.TensorSpec((None,), tf.float32)
    dataset = iterator.to_tf("number", "gap", additional_columns="gap", feature_type_spec=spec)
    assert [part.dtype for part in next(iter(dataset))] == [tf.float32, tf.float64, tf.float64]
    with pytest.raises(ValueError, match=r"label_columns: no column named 'y'.*number"):
        iterator.to_tf("number", "y")
    with pytest.raises(DataError, match="column 'ragged'"):
        iterator.to_tf("ragged", "number")


@pytest.mark.slow
def test_jax_batches_are_padded_to_one_shape() -> None:
    pytest.importorskip("jax")
    batch = (batch_of({"a": [1, 2, 3], "b": np.ones((3, 2), np.float32)}), {})
    found = to_jax_batch(batch, dtypes={"b": "float16"}, paddings={"a": -1}, batch_size=5)
    assert (
        found["a"].tolist() == [1, 2, 3, -1, -1] and found["b"].shape == (3, 2) and str(found["b"].dtype) == "float16"
    )
    doubled = list(jax_batches([batch], batch_size=4, collate_fn=lambda columns: columns["a"] * 2, paddings=0))
    assert doubled[0].tolist() == [2, 4, 6, 0]
    with pytest.raises(DataError, match=r"column 's'.*collate_fn"):
        to_jax_batch((batch_of({"s": ["x"]}), {}))
    with pytest.raises(DataError, match="'n' is int64 and has 1 nulls"):
        to_jax_batch((batch_of({"n": [1, None]}), {}))
