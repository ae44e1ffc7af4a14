from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trireme.data
from trireme import ScalingConfig
from trireme.data import DataError
from trireme.data._formats import PandasBatchCollateFn
from trireme.data._tensors import batch_of
from trireme.torch import TorchTrainer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from trireme.data._torch_batches import check_torch, to_torch, torch_batches  # noqa: E402


def numbers(rows: int = 4) -> tuple[pa.RecordBatch, dict[str, np.ndarray]]:
    arrays = {"x": np.arange(rows, dtype=np.float32), "y": np.arange(rows) * 10}
    return batch_of(arrays), arrays


def test_tensors_lie_in_the_memory_of_the_batch() -> None:
    batch, arrays = numbers()
    tensors = to_torch((batch, arrays))
    assert list(tensors) == ["x", "y"] and tensors["x"].dtype == torch.float32 and tensors["y"].dtype == torch.int64
    tensors["x"][0] = 5
    assert arrays["x"][0] == 5
    # Without arrays Arrow's memory, which is read-only, is copied.
    copied = to_torch((batch, {}))
    copied["y"][0] = 77
    assert batch["y"][0].as_py() == 0 and copied["y"].tolist() == [77, 10, 20, 30]


def test_dtypes_are_one_for_all_or_by_column() -> None:
    batch = numbers()
    assert {tensor.dtype for tensor in to_torch(batch, torch.float64).values()} == {torch.float64}
    by_column = to_torch(batch, {"y": torch.float16})
    assert by_column["x"].dtype == torch.float32 and by_column["y"].dtype == torch.float16
    with pytest.raises(ValueError, match="dtypes: no column named 'z'; the columns are x, y"):
        to_torch(batch, {"z": torch.float16})
    with pytest.raises(TypeError, match=r"expected a torch\.dtype"):
        check_torch({"x": "float32"})
    with pytest.raises(ValueError, match="are mutually exclusive"):
        check_torch(torch.float32, collate_fn=lambda batch: batch)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (np.ones((3, 2, 4), np.uint8), (3, 2, 4)),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (3, 2)),  # lists that happen to have equal lengths
        ([[[1], [2]], [[3], [4]], [[5], [6]]], (3, 2, 1)),
        ([True, False, True], (3,)),
        (pa.array([7, 8, 7]).dictionary_encode(), (3,)),
    ],
)
def test_columns_of_one_shape_are_tensors(values: Any, shape: tuple[int, ...]) -> None:
    batch = batch_of({"a": values})
    check_torch(None, schema=batch.schema)
    tensor = to_torch((batch, {}))["a"]
    assert tuple(tensor.shape) == shape
    plain = values.to_pylist() if isinstance(values, pa.Array) else np.asarray(values).tolist()
    assert tensor.tolist() == plain


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        [b"a", b"b"],
        np.array(["2026-01-01", "2026-01-02"], "datetime64[s]"),
        [{"a": 1}, {"a": 2}],
        [["a"], ["b"]],
    ],
)
def test_columns_that_are_not_tensors_are_named_before_anything_is_read(values: Any) -> None:
    batch = batch_of({"good": [1, 2], "bad": values})
    for call in (lambda: check_torch(None, schema=batch.schema), lambda: to_torch((batch, {}))):
        with pytest.raises(DataError, match=r"column 'bad' is .*drop_columns\(\['bad'\]\).*preprocessors.*collate_fn"):
            call()
    check_torch(None, collate_fn=lambda batch: batch, schema=batch.schema)


def test_rows_of_different_shapes_are_named() -> None:
    lists = batch_of({"a": [[1], [2, 3]]})
    with pytest.raises(DataError, match=r"column 'a' is list.* with shapes \[1\], \[2\] in a batch"):
        to_torch((lists, {}))
    with pytest.raises(DataError, match=r"shapes \[1\], null"):
        to_torch((batch_of({"a": [[1], None]}), {}))
    with pytest.raises(DataError, match=r"shapes \[1\], \[2\]"):
        to_torch((batch_of({"a": [[[1], [1, 2]], [[1], [2]]]}), {}))
    ragged = batch_of({"a": [np.ones((1, 2)), np.ones((2, 2))]})
    with pytest.raises(DataError, match=r"shapes \[1, 2\], \[2, 2\]"):
        to_torch((ragged, {}))
    assert to_torch((ragged.slice(1), {}))["a"].shape == (1, 2, 2)


def test_nulls_are_nan_among_floats_and_an_error_among_integers() -> None:
    batch = batch_of({"f": [1.0, None], "i": [1, None], "b": [True, None]})
    assert to_torch((batch.select(["f"]), {}))["f"].isnan().tolist() == [False, True]
    for name in ("i", "b"):
        with pytest.raises(DataError, match=f"column '{name}' is .* has 1 nulls in a batch: fill them"):
            to_torch((batch.select([name]), {}), {name: torch.int64})
        found = to_torch((batch.select([name]), {}), torch.float32)[name]
        assert found.dtype == torch.float32 and found[0] == 1 and found.isnan().tolist() == [False, True]


def test_batches_are_collated_one_by_one() -> None:
    class Sum(PandasBatchCollateFn):
        def __call__(self, batch: Any) -> Any:
            return torch.tensor(batch["y"].sum())

    batches = [numbers(2), numbers(3)]
    assert [tensor.item() for tensor in torch_batches(batches, collate_fn=Sum())] == [10, 30]
    found = list(torch_batches(batches, collate_fn=lambda batch: (torch.from_numpy(batch["x"]), "label")))
    assert [len(features) for features, _ in found] == [2, 3] and found[0][1] == "label"
    # Batches are read from the dataset on demand, one at a time.
    taken: list[int] = []

    def source() -> Iterator[Any]:
        for index in range(3):
            taken.append(index)
            yield numbers(index + 1)

    stream = torch_batches(source())
    assert taken == []
    next(stream)
    assert taken == [0]


def test_batches_are_copied_to_the_device_and_pinning_without_a_gpu_warns() -> None:
    found = list(torch_batches([numbers(), numbers()], device="meta"))
    assert [batch["x"].device.type for batch in found] == ["meta", "meta"]
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="there is no GPU"):
            assert next(torch_batches([numbers()], pin_memory=True))["y"].tolist() == [0, 10, 20, 30]


def test_auto_is_the_device_of_the_worker() -> None:
    assert next(torch_batches([numbers()]))["x"].device.type == "cpu"

    def train() -> None:
        import numpy

        import trireme
        from trireme.data import _torch_batches
        from trireme.data._tensors import batch_of

        # Without a GPU: another device replaces the worker's.
        _torch_batches.get_device = lambda: torch.device("meta")
        batch = next(_torch_batches.torch_batches([(batch_of({"x": numpy.ones(2)}), {})]))
        trireme.report({"device": batch["x"].device.type})

    result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit()
    assert result.metrics is not None and result.metrics["device"] == "meta"


def test_a_dataset_gives_tensors_and_refuses_text_at_once() -> None:
    table = pa.table({"x": np.arange(10, dtype=np.float32), "v": [[row, row + 1] for row in range(10)]})
    found = list(
        trireme.data.from_arrow(table).iterator().iter_torch_batches(batch_size=4, dtypes={"x": torch.float64})
    )
    assert [len(batch["x"]) for batch in found] == [4, 4, 2]
    assert (
        torch.cat([batch["x"] for batch in found]).tolist() == list(range(10)) and found[0]["x"].dtype == torch.float64
    )
    assert torch.cat([batch["v"] for batch in found]).tolist() == table["v"].to_pylist()
    text = trireme.data.from_arrow(table.append_column("text", pa.array(["a"] * 10)))
    with pytest.raises(DataError, match="column 'text' is string"):
        text.iterator().iter_torch_batches()
    with pytest.raises(ValueError, match="dtypes: no column named 'z'"):
        text.iterator().iter_torch_batches(dtypes={"z": torch.int8})


def test_a_torch_dataset_of_features_and_label() -> None:
    batch = batch_of({"a": [1, 2], "b": [3.0, 4.0], "c": [5, 6], "label": [0, 1], "text": ["x", "y"]})

    def dataset(**options: Any) -> Any:
        return trireme.data.from_arrow(batch).iterator().to_torch(batch_size=2, **options)

    one = dataset(label_column="label", feature_columns=["a", "b"], feature_column_dtypes=torch.float32)
    for _ in range(2):  # epochs
        [(features, label)] = list(one)
        assert (
            features.dtype == torch.float32 and features.tolist() == [[1, 3], [2, 4]] and label.tolist() == [[0], [1]]
        )
    [(features, label)] = list(
        dataset(
            label_column="label",
            label_column_dtype=torch.float32,
            unsqueeze_label_tensor=False,
            feature_columns=[["a", "c"], ["b"]],
            feature_column_dtypes=[torch.int32, torch.float64],
        )
    )
    assert [tensor.dtype for tensor in features] == [torch.int32, torch.float64]
    assert features[0].tolist() == [[1, 5], [2, 6]] and label.tolist() == [0.0, 1.0]
    [(features, label)] = list(dataset(feature_columns={"left": ["a"], "right": ["b", "c"]}))
    assert features["left"].tolist() == [[1], [2]] and features["right"].tolist() == [[3, 5], [4, 6]] and label is None
    with pytest.raises(DataError, match="column 'text'"):
        list(dataset(label_column="label"))  # all others
    with pytest.raises(ValueError, match="feature_columns: no column named 'z'"):
        dataset(feature_columns=["z"])
    with pytest.raises(ValueError, match="label_column: no column named 'z'"):
        dataset(label_column="z", feature_columns=["a"])
    with pytest.raises(ValueError, match="feature_column_dtypes"):
        dataset(feature_columns={"left": ["a"]}, feature_column_dtypes={"right": torch.int8})
    with pytest.raises(ValueError, match="is empty"):
        dataset(feature_columns=[["a"], []])
