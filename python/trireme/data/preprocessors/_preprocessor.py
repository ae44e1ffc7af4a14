"""The base of all preprocessors: fitted to a dataset, applied to datasets and batches, saved with a checkpoint."""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from trireme._storage import write_whole
from trireme.data._column_ops import ColumnOp
from trireme.data._formats import in_format
from trireme.data._fragment import DataError, FunctionOp, Where
from trireme.data.preprocessors._columns import batch_from
from trireme.data.preprocessors._json import NotJson, decoded, encoded

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

FILE = "preprocessor.json"


def _class_name(cls: type) -> str:
    """Trireme's preprocessors by their public names, because modules may move."""
    own = cls.__module__.startswith("trireme.data.preprocessors.")
    return cls.__qualname__ if own else f"{cls.__module__}.{cls.__qualname__}"


class PreprocessorNotFittedException(RuntimeError):
    """Raised by transform() before fit()."""


class Preprocessor:
    """Learns statistics of a dataset in fit(), and applies them to datasets and batches in transform().

    To write your own: store the arguments of __init__() in attributes of the same names, and the results of _fit(ds) in
    stats_ or in attributes that end in an underscore. Define _transform_numpy(dict), _transform_pandas(DataFrame) or
    _transform_arrow(Table). If there is nothing to learn, set _is_fittable = False.
    """

    class FitStatus(StrEnum):
        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"  # a Chain
        FITTED = "FITTED"

    _is_fittable = True
    _fitted = False
    # Arguments that may be user functions, which run in function processes.
    _functions: tuple[str, ...] = ()
    _classes: dict[str, type[Preprocessor]] = {}  # noqa: RUF012

    stats_: dict[str, Any]

    def __init__(self) -> None:
        self.stats_ = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Preprocessor._classes[_class_name(cls)] = cls

    def fit_status(self) -> Preprocessor.FitStatus:
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        return Preprocessor.FitStatus.FITTED if self._fitted else Preprocessor.FitStatus.NOT_FITTED

    def fit(self, ds: Dataset) -> Self:
        """Reads the input columns once and replaces earlier statistics."""
        status = self.fit_status()
        if status is Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status is not Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(f"{self!r} was already fitted: its statistics are replaced", stacklevel=2)
        _require_dataset(ds, "fit")
        self._forget()
        self._fit(ds)
        self._fitted = True
        return self

    def fit_transform(
        self,
        ds: Dataset,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Dataset:
        return self.fit(ds).transform(ds, batch_size=transform_batch_size, concurrency=transform_concurrency)

    def transform(
        self,
        ds: Dataset,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Dataset:
        """A dataset whose batches are transformed while they are read.

        batch_size, concurrency: as in map_batches(), if the preprocessor calls a user function. num_cpus, memory: for
        compatibility with Ray; nothing is reserved.
        """
        self._require_fitted("transform")
        _require_dataset(ds, "transform")
        if not self._calls_functions():
            made = ds._then(PreprocessorOp(self))
            if not any(isinstance(op, FunctionOp) for op in made._plan.ops()):
                made._plan.schema()  # reports invalid columns now, if that needs no trial call
            return made
        options: dict[str, Any] = {"batch_size": batch_size, "concurrency": concurrency}
        return self._map(ds, {name: value for name, value in options.items() if value is not None})

    def transform_batch(self, data: Any) -> Any:
        """Transforms a batch and keeps its type: a dict of arrays, a DataFrame, a Table, a RecordBatch."""
        self._require_fitted("transform_batch")
        batch = self._apply(batch_from(data))
        if isinstance(data, pa.RecordBatch):
            return batch
        if isinstance(data, pa.Table):
            return pa.Table.from_batches([batch])
        if isinstance(data, dict):
            return in_format((batch, {}), "numpy")
        frame = in_format((batch, {}), "pandas")
        frame.index = data.index
        return frame

    def serialize(self) -> str:
        """JSON with the statistics. `metadata={"preprocessor": scaler.serialize()}` stores it with every checkpoint of
        a run."""
        return json.dumps(self._described())

    @staticmethod
    def deserialize(serialized: str) -> Preprocessor:
        try:
            described = json.loads(serialized)
        except ValueError as error:
            raise ValueError(f"{str(serialized)[:60]!r} was not written by Preprocessor.serialize(): {error}") from None
        return Preprocessor._made(described)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes preprocessor.json to a folder, for example a checkpoint's."""
        text = self.serialize()
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_whole(os.path.join(folder, FILE), text.encode())

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Preprocessor:
        path = Path(folder, FILE)
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: Preprocessor.save(folder) writes it")
        return Preprocessor.deserialize(path.read_text())

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={_shown(value)}" for name, value in self._arguments().items())
        return f"{type(self).__name__}({given})"

    def _fit(self, ds: Dataset) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _fit(ds); set _is_fittable = False if it needs no fit")

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Implemented by Trireme's preprocessors, which the core computes. Fast: runs in the reading thread."""
        raise NotImplementedError

    def _transform_numpy(self, data: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _transform_pandas(self, data: Any) -> Any:
        raise NotImplementedError

    def _transform_arrow(self, data: pa.Table) -> Any:
        raise NotImplementedError

    def _function(self) -> tuple[str, Any]:
        """The batch format of a user's subclass, and its transform function."""
        for batch_format, name in (
            ("pyarrow", "_transform_arrow"),
            ("numpy", "_transform_numpy"),
            ("pandas", "_transform_pandas"),
        ):
            if getattr(type(self), name) is not getattr(Preprocessor, name):
                return batch_format, getattr(self, name)
        raise NotImplementedError(
            f"{type(self).__name__} needs one of _transform_numpy(dict), _transform_pandas(DataFrame) or "
            "_transform_arrow(Table)"
        )

    def _changes_batches(self) -> bool:
        return type(self)._change is not Preprocessor._change

    def _calls_functions(self) -> bool:
        return not self._changes_batches() or any(getattr(self, name) is not None for name in self._functions)

    def _apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._changes_batches():
            return self._change(batch)
        batch_format, function = self._function()
        return batch_from(function(in_format((batch, {}), batch_format)))

    def _change_table(self, table: pa.Table) -> pa.Table:
        return pa.Table.from_batches([self._change(batch_from(table))])

    def _map(self, ds: Dataset, options: dict[str, Any]) -> Dataset:
        batch_format, function = ("pyarrow", self._change_table) if self._changes_batches() else self._function()
        return ds.map_batches(function, batch_format=batch_format, **options)

    def _forget(self) -> None:
        self._fitted = False
        self.stats_ = {}

    def _require_fitted(self, what: str) -> None:
        if self.fit_status() in (Preprocessor.FitStatus.NOT_FITTED, Preprocessor.FitStatus.PARTIALLY_FITTED):
            raise PreprocessorNotFittedException(
                f"{self!r} has not been fitted: call fit(ds) before {what}(), or fit_transform(ds)"
            )

    def _arguments(self) -> dict[str, Any]:
        parameters = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in list(parameters)[1:]}

    def _described(self) -> dict[str, Any]:
        content: dict[str, Any] = {"preprocessor": _class_name(type(self)), "arguments": {}, "fitted": None}
        learned = {name: value for name, value in vars(self).items() if name.endswith("_")} if self._fitted else {}
        for part, values in (("arguments", self._arguments()), ("fitted", learned)):
            if part == "fitted" and not self._fitted:
                continue
            content[part] = {}
            for name, value in values.items():
                try:
                    content[part][name] = encoded(value)
                except NotJson as error:
                    raise TypeError(
                        f"{type(self).__name__} cannot be written as JSON: {name} contains {error.value!r}. Create "
                        "this preprocessor in your own module when you need it, and serialize() the others"
                    ) from None
        return content

    @staticmethod
    def _made(described: Any) -> Preprocessor:
        if not isinstance(described, dict) or "preprocessor" not in described:
            raise ValueError("this JSON was not written by Preprocessor.serialize()")
        name = described["preprocessor"]
        found = Preprocessor._classes.get(name)
        if found is None:
            raise ValueError(f"no preprocessor named {name!r}: if it is your own, import its module first")
        return found._remade(described)

    @classmethod
    def _remade(cls, described: dict[str, Any]) -> Preprocessor:
        made = cls(**decoded(described["arguments"]))
        if described["fitted"] is not None:
            for attribute, value in described["fitted"].items():
                setattr(made, attribute, decoded(value))
            made._fitted = True
        return made


class PreprocessorOp(ColumnOp):
    def __init__(self, preprocessor: Preprocessor) -> None:
        self._preprocessor = preprocessor
        self.name = repr(preprocessor)

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                changed = self.change(batch)
            except (ValueError, pa.ArrowException) as error:
                raise DataError(f"{where.fragment}: {error}") from error
            yield changed

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._preprocessor._change(batch)


def _require_dataset(ds: Any, what: str) -> None:
    if not hasattr(ds, "_plan"):
        raise TypeError(
            f"{what}() takes a trireme.data Dataset, not {type(ds).__name__}: create one with "
            "trireme.data.from_pandas() or similar, or use transform_batch() for DataFrames, tables and dicts of arrays"
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
