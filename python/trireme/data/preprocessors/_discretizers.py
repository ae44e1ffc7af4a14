"""Assigns numbers to bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme._core import count_of
from trireme.data.preprocessors._columns import as_floats, numeric, replaced
from trireme.data.preprocessors._encoders import listed
from trireme.data.preprocessors._preprocessor import ColumnsPreprocessor
from trireme.data.preprocessors._statistics import moments

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class _Discretizer(ColumnsPreprocessor):
    """Replaces a number with the index of its bin (int64), like pandas.cut(labels=False), or null if it is in no bin.

    right: bins are (a, b], otherwise [a, b). include_lowest: the first bin includes its lower edge. duplicates: "drop"
    removes duplicate edges, "raise" raises. dtypes: names of the bins by column (a list, or a pandas CategoricalDtype);
    other types have no effect.
    """

    def _set_bins(
        self,
        columns: Sequence[str],
        bins: Any,
        right: bool,
        include_lowest: bool,
        duplicates: str,
        dtypes: Mapping[str, Any] | None,
        output_columns: Sequence[str] | None,
    ) -> None:
        self._set_columns(columns, output_columns)
        if duplicates not in ("raise", "drop"):
            raise ValueError(f"duplicates={duplicates!r}: expected 'raise' or 'drop'")
        if isinstance(bins, Mapping):
            missing = [name for name in self.columns if name not in bins]
            if missing:
                raise ValueError(f"bins has no entry for {', '.join(map(repr, missing))}: pass one for each column")
        self.bins = bins
        self.right = right
        self.include_lowest = include_lowest
        self.duplicates = duplicates
        named = (list, tuple)
        self.dtypes = {
            name: listed(dtype)
            for name, dtype in (dtypes or {}).items()
            if isinstance(dtype, named) or getattr(dtype, "categories", None) is not None
        }

    def _bins_of(self, name: str) -> Any:
        return self.bins[name] if isinstance(self.bins, Mapping) else self.bins

    def _edges(self, name: str) -> np.ndarray:
        raise NotImplementedError

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            values = as_floats(numeric(batch, name, type(self).__name__))
            edges = self._edges(name)
            places: np.ndarray = np.asarray(np.searchsorted(edges, values, "left" if self.right else "right"))
            if self.include_lowest:
                places[values == edges[0]] = 1
            outside = np.isnan(values) | (places == 0) | (places == len(edges))
            changed[output] = pa.array(places - 1, pa.int64(), mask=outside)
            if name in self.dtypes:
                names = pa.array(self.dtypes[name])
                if len(names) != len(edges) - 1:
                    given, bins = count_of(len(names), "name"), count_of(len(edges) - 1, "bin")
                    raise ValueError(f"dtypes: {given} for {bins} of column {name!r}")
                changed[output] = pa.DictionaryArray.from_arrays(changed[output].cast(pa.int32()), names)
        return replaced(batch, changed)


class CustomKBinsDiscretizer(_Discretizer):
    """Bins with the given edges: one list, or one for each column."""

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        bins: Iterable[float] | Mapping[str, Iterable[float]],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        given = {name: _floats(edges) for name, edges in bins.items()} if isinstance(bins, Mapping) else _floats(bins)
        self._set_bins(columns, given, right, include_lowest, duplicates, dtypes, output_columns)
        for name in self.columns:
            self._edges(name)

    def _edges(self, name: str) -> np.ndarray:
        edges: np.ndarray = np.asarray(self._bins_of(name), np.float64)
        steps = np.diff(edges)
        if len(edges) < 2 or (steps < 0).any():
            raise ValueError(
                f"bins={edges.tolist()} for column {name!r}: expected at least two edges, in ascending order"
            )
        if (steps == 0).any():
            if self.duplicates == "raise":
                raise ValueError(f"bins={edges.tolist()}: an edge appears twice; duplicates='drop' removes duplicates")
            edges = np.unique(edges)
        return edges


class UniformKBinsDiscretizer(_Discretizer):
    """`bins` bins of equal width between the smallest and the largest value that fit() finds."""

    def __init__(
        self,
        columns: Sequence[str],
        bins: int | Mapping[str, int],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        given = dict(bins) if isinstance(bins, Mapping) else bins
        self._set_bins(columns, given, right, include_lowest, duplicates, dtypes, output_columns)
        for name in self.columns:
            number = self._bins_of(name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"bins={bins!r}: expected a number of bins, or a dict of them by column")

    def _fit(self, ds: Dataset) -> None:
        for name, found in moments(ds, self.columns, "UniformKBinsDiscretizer").items():
            self.stats_[name] = _uniform(found.low, found.high, self._bins_of(name), self.right)

    def _edges(self, name: str) -> np.ndarray:
        edges: np.ndarray = np.asarray(self.stats_[name], np.float64)
        return edges


def _uniform(low: float, high: float, bins: int, right: bool) -> list[float]:
    """Like pandas.cut: extended by a thousandth on the open side, so that the outermost value is included."""
    if low == high:
        low -= 0.001 * abs(low) if low else 0.001
        high += 0.001 * abs(high) if high else 0.001
        return [float(edge) for edge in np.linspace(low, high, bins + 1)]
    edges = np.linspace(low, high, bins + 1)
    if right:
        edges[0] -= (high - low) * 0.001
    else:
        edges[-1] += (high - low) * 0.001
    return [float(edge) for edge in edges]


def _floats(edges: Iterable[float]) -> list[float]:
    try:
        return [float(edge) for edge in edges]
    except TypeError:
        raise ValueError(f"bins={edges!r}: expected a list of edges, or a dict of them by column") from None
