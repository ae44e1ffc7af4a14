"""Batches as torch tensors. Imports torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import IterableDataset

from trireme import _session
from trireme.data._column_ops import require_columns
from trireme.data._formats import (
    Batch,
    arrays_of,
    check_collate,
    check_dtypes,
    collated,
    dtype_of,
    raw_batches,
    same_type,
)
from trireme.data._fragment import DataError
from trireme.data._tensors import RaggedTensorType, is_number, numpy_of, tensor_shape
from trireme.torch._device import get_device
from trireme.torch._transfer import _each_tensor, transferred

if TYPE_CHECKING:
    from trireme.data._iterator import DataIterator

Dtypes: TypeAlias = "torch.dtype | dict[str, torch.dtype] | None"


def check_torch(
    dtypes: Dtypes, collate_fn: Callable[[Any], Any] | None = None, schema: pa.Schema | None = None
) -> None:
    """Checks the arguments of iter_torch_batches() before anything is read."""
    check_collate(collate_fn, dtypes)
    for dtype in dtypes.values() if isinstance(dtypes, dict) else [dtypes]:
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtypes={dtypes!r}: expected a torch.dtype, or a dict of them by column")
    if schema is None or collate_fn is not None:
        return
    check_dtypes(dtypes, schema)
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not _may_be_tensor(kind):
            raise _no_tensor(field.name, field.type)


def to_torch(batch: Batch, dtypes: Dtypes = None, device: torch.device | None = None) -> dict[str, torch.Tensor]:
    """A dict of tensors. They share the batch's memory if it has arrays."""
    if dtypes is not None:
        check_dtypes(dtypes, batch[0].schema)
    tensors = {}
    for name, array in arrays_of(batch, lambda column, name: _numbers(column, name, dtype_of(name, dtypes))).items():
        dtype = dtype_of(name, dtypes)
        tensor = torch.from_numpy(array)
        tensors[name] = tensor if dtype is None else tensor.to(dtype)
    if device is None or device.type == "cpu":
        return tensors
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def torch_batches(
    batches: Iterable[Batch],
    *,
    dtypes: Dtypes = None,
    device: torch.device | str = "auto",
    collate_fn: Callable[[Any], Any] | None = None,
    pin_memory: bool = False,
) -> Iterator[Any]:
    """One batch for each batch. The next one is copied to the GPU while the current one is in use."""
    check_torch(dtypes, collate_fn)
    target = target_device(device)
    if collate_fn is None:
        made: Iterator[Any] = (to_torch(batch, dtypes) for batch in batches)
    else:
        made = (collated(batch, collate_fn) for batch in batches)
    if pin_memory and torch.cuda.is_available():
        made = (_each_tensor(batch, torch.Tensor.pin_memory) for batch in made)
    elif pin_memory:
        warnings.warn("pin_memory=True has no effect: there is no GPU", stacklevel=2)
    return transferred(made, target, ahead=True)


def target_device(device: torch.device | str) -> torch.device:
    return training_device() if device == "auto" else torch.device(device)


def training_device() -> torch.device:
    """The worker's device, or the CPU outside of a training function."""
    return torch.device("cpu") if _session._current is None else get_device()


class TorchBatches(IterableDataset[Any]):  # type: ignore[misc]
    """The result of DataIterator.to_torch(): pairs of features and label."""

    def __init__(
        self,
        iterator: DataIterator,
        *,
        label_column: str | None = None,
        feature_columns: Sequence[str] | Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        label_column_dtype: torch.dtype | None = None,
        feature_column_dtypes: torch.dtype | Sequence[torch.dtype] | Mapping[str, torch.dtype] | None = None,
        batch_size: int = 1,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
        **options: Any,
    ) -> None:
        """feature_columns: a list of names for one tensor, a list of lists or a dict of lists for several tensors;
        default: all columns but the label. feature_column_dtypes: one dtype, or one for each tensor in the structure of
        feature_columns. options: those of iter_batches().
        """
        schema = iterator.schema()
        if label_column is not None:
            require_columns([label_column], schema, "label_column")
        if not feature_columns:
            feature_columns = [name for name in schema.names if name != label_column]
        self._groups = _groups(feature_columns)
        self._dtypes = _group_dtypes(self._groups, feature_column_dtypes)
        require_columns([name for group in self._groups.values() for name in group], schema, "feature_columns")
        self._one = None in self._groups
        self._as_dict = isinstance(feature_columns, Mapping)
        self._batches = raw_batches(iterator, batch_size=batch_size, **options)
        self._label = label_column
        self._label_dtype = label_column_dtype
        self._unsqueeze_label = unsqueeze_label_tensor
        self._unsqueeze_features = unsqueeze_feature_tensors

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor | None]]:
        wanted = {name for group in self._groups.values() for name in group}
        if self._label is not None:
            wanted.add(self._label)
        for record_batch, arrays in self._batches:
            names = [name for name in record_batch.schema.names if name in wanted]
            tensors = to_torch((record_batch.select(names), arrays))
            label = None
            if self._label is not None:
                label = _joined([tensors[self._label]], self._label_dtype, self._unsqueeze_label)
            features = {
                key: _joined([tensors[name] for name in group], self._dtypes[key], self._unsqueeze_features)
                for key, group in self._groups.items()
            }
            if self._as_dict:
                yield features, label
            else:
                yield (features[None] if self._one else list(features.values())), label


def _groups(feature_columns: Any) -> dict[Any, list[str]]:
    """Columns by the key of their tensor: the key in the dict, the index in the list, or None for a single tensor."""
    if isinstance(feature_columns, Mapping):
        groups: dict[Any, list[str]] = {key: list(names) for key, names in feature_columns.items()}
    elif isinstance(feature_columns[0], (list, tuple)):
        groups = {index: list(names) for index, names in enumerate(feature_columns)}
    else:
        groups = {None: list(feature_columns)}
    if not all(groups.values()):
        raise ValueError(f"feature_columns={feature_columns!r}: a list of columns is empty")
    return groups


def _group_dtypes(groups: dict[Any, list[str]], dtypes: Any) -> dict[Any, torch.dtype | None]:
    if dtypes is None or isinstance(dtypes, torch.dtype):
        return dict.fromkeys(groups, dtypes)
    by_key = dict(dtypes) if isinstance(dtypes, Mapping) else dict(enumerate(dtypes))
    if set(by_key) != set(groups):
        raise ValueError(
            f"feature_column_dtypes={dtypes!r}: expected one torch.dtype, or one for each tensor, in the same "
            "structure as feature_columns"
        )
    return by_key


def _joined(columns: list[torch.Tensor], dtype: torch.dtype | None, unsqueeze: bool) -> torch.Tensor:
    if dtype is not None:
        columns = [column.to(dtype) for column in columns]
    if unsqueeze:
        columns = [column.unsqueeze(1) for column in columns]
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


def _numbers(column: pa.Array, name: str, dtype: torch.dtype | None) -> np.ndarray:
    """The column as an array that torch accepts and may write to."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _numbers(column.dictionary_decode(), name, dtype)
    if not _may_be_tensor(kind):
        raise _no_tensor(name, kind)
    column = same_type(column, name, dtype is not None and dtype.is_floating_point)
    values = numpy_of(column, name)
    if values.dtype == object:
        values = _stacked(values, name, kind)
    return values if values.flags.writeable else values.copy()


def _stacked(values: np.ndarray, name: str, kind: pa.DataType) -> np.ndarray:
    """Stacks lists of equal length, and ragged tensors that have equal shapes in this batch."""
    rows = [_stacked(value, name, kind) if _has_objects(value) else value for value in values]
    shapes = {None if row is None else np.shape(row) for row in rows}
    if len(shapes) > 1 or None in shapes:
        raise _no_tensor(name, kind, f" with {_shapes(shapes)} in a batch")
    stacked: np.ndarray = np.stack(rows) if rows else np.empty(0)
    return stacked


def _has_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _shapes(shapes: set[tuple[int, ...] | None]) -> str:
    some = sorted(
        ("null" if shape is None else str(list(shape)) for shape in shapes), key=lambda text: (len(text), text)
    )
    return "shapes " + ", ".join(some[:4]) + (", ..." if len(some) > 4 else "")


def _may_be_tensor(kind: pa.DataType) -> bool:
    if isinstance(kind, RaggedTensorType) or tensor_shape(kind) is not None or is_number(kind):
        return True
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _may_be_tensor(kind.value_type)
    return False


def _no_tensor(name: str, kind: pa.DataType, why: str = "") -> DataError:
    return DataError(
        f"column {name!r} is {kind}{why}, which cannot be converted to a tensor: drop it "
        f"(drop_columns([{name!r}])), convert it to numbers of one shape (map_batches(), trireme.data.preprocessors), "
        "or pass a collate_fn"
    )
