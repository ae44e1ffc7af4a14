"""Chains of preprocessors, and functions as preprocessors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from trireme.data._formats import check_format, in_format
from trireme.data.preprocessors._columns import batch_from
from trireme.data.preprocessors._preprocessor import Preprocessor

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class Chain(Preprocessor):
    """Applies preprocessors in order. Each is fitted to the output of the previous ones."""

    def __init__(self, *preprocessors: Preprocessor) -> None:
        super().__init__()
        if not preprocessors or not all(isinstance(preprocessor, Preprocessor) for preprocessor in preprocessors):
            raise ValueError(f"Chain{preprocessors!r}: expected preprocessors")
        self.preprocessors = preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        status = Preprocessor.FitStatus
        found = {preprocessor.fit_status() for preprocessor in self.preprocessors} - {status.NOT_FITTABLE}
        if not found:
            return status.NOT_FITTABLE
        return found.pop() if len(found) == 1 else status.PARTIALLY_FITTED

    def _forget(self) -> None:
        super()._forget()
        for preprocessor in self.preprocessors:
            preprocessor._forget()

    def _fit(self, ds: Dataset) -> None:
        for preprocessor in self.preprocessors:
            ds = preprocessor.fit_transform(ds)

    def transform(self, ds: Dataset, **options: Any) -> Dataset:
        self._require_fitted("transform")
        for preprocessor in self.preprocessors:
            ds = preprocessor.transform(ds, **options)
        return ds

    def _apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for preprocessor in self.preprocessors:
            batch = preprocessor._apply(batch)
        return batch

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.preprocessors))})"

    def _described(self) -> dict[str, Any]:
        return {"preprocessor": "Chain", "chain": [preprocessor._described() for preprocessor in self.preprocessors]}

    @classmethod
    def _remade(cls, described: dict[str, Any]) -> Self:
        return cls(*(Preprocessor._made(item) for item in described["chain"]))


class BatchMapper(Preprocessor):
    """Calls a function on batches: map_batches() as a part of a Chain. It cannot be serialized: serialize() raises.

    batch_format: "numpy", "pandas" or "pyarrow". batch_size and other options: as in map_batches().
    """

    _is_fittable = False

    def __init__(
        self,
        fn: Callable[[Any], Any],
        batch_format: str = "default",
        batch_size: int | str | None = None,
        **map_batches_kwargs: Any,
    ) -> None:
        super().__init__()
        if not callable(fn):
            raise ValueError(f"fn={fn!r}: expected a function that takes a batch")
        check_format(batch_format)
        self.fn = fn
        self.batch_format = batch_format
        self.batch_size = None if batch_size == "default" else batch_size
        self.map_batches_kwargs = map_batches_kwargs

    def _apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch_from(self.fn(in_format((batch, {}), self.batch_format)))

    def _map(self, ds: Dataset, options: dict[str, Any]) -> Dataset:
        given = {"batch_size": self.batch_size} if self.batch_size is not None else {}
        return ds.map_batches(self.fn, batch_format=self.batch_format, **given | self.map_batches_kwargs | options)

    def __repr__(self) -> str:
        return f"BatchMapper({getattr(self.fn, '__name__', self.fn)}, batch_format={self.batch_format!r})"


class TorchVisionPreprocessor(Preprocessor):
    """Applies a torchvision transform to columns of images. It cannot be serialized: serialize() raises.

    transform: takes a tensor, or an array if it does not accept tensors (like ToTensor), and returns either.
    batched: call it on all images of a batch at once.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        transform: Callable[[Any], Any],
        output_columns: Sequence[str] | None = None,
        batched: bool = False,
    ) -> None:
        super().__init__()
        outputs = columns if output_columns is None else output_columns
        if isinstance(columns, str) or isinstance(outputs, str) or len(columns) != len(outputs):
            raise ValueError(f"columns={columns!r}, output_columns={outputs!r}: expected two lists of the same length")
        self.columns = list(columns)
        self.output_columns = list(outputs)
        self.torchvision_transform = transform
        self.batched = batched

    def get_input_columns(self) -> list[str]:
        return self.columns

    def get_output_columns(self) -> list[str]:
        return self.output_columns

    def _arguments(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "transform": self.torchvision_transform,
            "output_columns": self.output_columns,
            "batched": self.batched,
        }

    def _transform_numpy(self, data: dict[str, Any]) -> dict[str, Any]:
        made = dict(data)
        for name, output in zip(self.columns, self.output_columns, strict=True):
            images = data[name]
            made[output] = self._called(images) if self.batched else [self._called(image) for image in images]
        return made

    def _called(self, image: np.ndarray) -> np.ndarray:
        import torch

        try:
            result = self.torchvision_transform(torch.from_numpy(np.array(image)))
        except TypeError:
            result = self.torchvision_transform(image)
        if isinstance(result, torch.Tensor):
            result = result.numpy()
        if not isinstance(result, np.ndarray):
            raise ValueError(f"the transform returned a {type(result).__name__}: expected a tensor or an array")
        return result
