"""The base of the preprocessors that the core computes. They have their arguments, statistics and JSON in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from trireme import _core
from trireme.data._column_ops import require_columns
from trireme.data._stream import stream
from trireme.data._tensors import fixed_tensors, numpy_of, plain_type
from trireme.data.preprocessors._columns import replaced
from trireme.data.preprocessors._json import NotJson, decoded, encoded
from trireme.data.preprocessors._preprocessor import Preprocessor

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class CorePreprocessor(Preprocessor):
    """The fields of a subclass, a dataclass, are its arguments. The core checks them and sets their defaults."""

    columns: Sequence[str]
    output_columns: Any  # a list of names

    # What the core has computed last: the statistics, whether they are complete, and the core's object.
    _made_of: tuple[dict[str, Any], bool, _core.CorePreprocessor] | None = None

    def __post_init__(self) -> None:
        super().__init__()
        for name in ("columns", "output_columns"):
            names = getattr(self, name, None)
            if names is not None and not isinstance(names, str):
                setattr(self, name, list(names))
        made = self._describe_to_core(None)
        for name, value in decoded(made.arguments).items():
            if name not in self._functions:
                setattr(self, name, value)
        self._is_fittable = made.fittable

    def get_input_columns(self) -> list[str]:
        return self._handle().inputs

    def get_output_columns(self) -> list[str]:
        return self._handle().outputs

    def _fit(self, ds: Dataset) -> None:
        core = self._handle()
        learner = core.learner()
        if core.learned:
            for batch in self._batches(ds, core.learned):
                learner.add(batch)
        fitted, stats = learner.done()
        self.stats_ = decoded(stats)
        self._made_of = (self.stats_, True, fitted)

    def _batches(self, ds: Dataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """In the order of the dataset before any shuffle: the statistics do not depend on it."""
        require_columns(columns, ds._plan.schema(), self._core_name())
        for batch in stream(ds.select_columns(list(columns))._plan.pieces()):
            yield readable(batch, columns)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        core = self._handle()
        given = readable(batch, core.inputs)
        made = pa.record_batch(core.transform(given))
        if given is batch:
            return made
        kept = [name for name in core.inputs if name in made.schema.names and name not in core.outputs]
        return replaced(made, {name: batch.column(name) for name in kept})

    def _handle(self) -> _core.CorePreprocessor:
        """Made when it is first needed after a change of the statistics, and in another process."""
        if self._made_of is None or self._made_of[0] is not self.stats_ or self._made_of[1] != self._fitted:
            made = self._describe_to_core(self.stats_ if self._fitted else None)
            self._made_of = (self.stats_, self._fitted, made)
        return self._made_of[2]

    def _describe_to_core(self, stats: dict[str, Any] | None) -> _core.CorePreprocessor:
        described: dict[str, Any] = {"preprocessor": self._core_name(), "arguments": {}, "fitted": None}
        for name in (field.name for field in fields(cast(Any, self)) if field.name not in self._functions):
            value = getattr(self, name)
            try:
                described["arguments"][name] = encoded(value)
            except NotJson as error:
                raise ValueError(f"{name}={value!r}: {error.value!r} is not a valid value") from None
        if stats is not None:
            described["fitted"] = {"stats_": encoded(stats)}
        return _core.CorePreprocessor.of_json(json.dumps(described))

    @classmethod
    def _core_name(cls) -> str:
        """Of the class in this package that a user's class is derived from."""
        return next(base.__name__ for base in cls.__mro__ if base.__module__.startswith(f"{__package__}."))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_made_of"}


def readable(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The columns in layouts that the core reads: no views, no run-end encoding, no permuted tensors."""
    for name in names:
        index = batch.schema.get_field_index(name)
        if index < 0:
            continue
        column = batch.column(index)
        kind = plain_type(column.type)
        if kind != column.type:
            batch = batch.set_column(index, name, column.cast(kind))
        elif isinstance(kind, pa.FixedShapeTensorType) and kind.permutation:
            batch = batch.set_column(index, name, fixed_tensors(np.asarray(numpy_of(column, name))))
    return batch
