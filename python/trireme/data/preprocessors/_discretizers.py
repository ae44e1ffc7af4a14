"""Assigns numbers to bins.

A discretizer replaces a number with the index of its bin (int64), like pandas.cut(labels=False), or null if it is in no
bin. right: bins are (a, b], otherwise [a, b). include_lowest: the first bin includes its lower edge. duplicates: "drop"
removes duplicate edges, "raise" raises. dtypes: names of the bins by column (a list, or a pandas CategoricalDtype);
other types have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor
from trireme.data.preprocessors._encoders import listed


@dataclass(eq=False, repr=False)
class _Discretizer(CorePreprocessor):
    columns: Sequence[str]
    bins: Any
    _: KW_ONLY
    right: bool = True
    include_lowest: bool = False
    duplicates: str = "raise"
    dtypes: Mapping[str, Any] | None = None
    output_columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.dtypes = _named(self.dtypes)
        super().__post_init__()


@dataclass(eq=False, repr=False)
class CustomKBinsDiscretizer(_Discretizer):
    """Bins with the given edges: one list, or one for each column."""

    bins: Iterable[float] | Mapping[str, Iterable[float]]

    def __post_init__(self) -> None:
        if isinstance(self.bins, Mapping):
            self.bins = {name: _floats(edges) for name, edges in self.bins.items()}
        else:
            self.bins = _floats(self.bins)
        super().__post_init__()


@dataclass(eq=False, repr=False)
class UniformKBinsDiscretizer(_Discretizer):
    """`bins` bins of equal width between the smallest and the largest value that fit() finds."""

    bins: int | Mapping[str, int]


def _named(dtypes: Mapping[str, Any] | None) -> dict[str, list[Any]]:
    return {
        name: listed(dtype)
        for name, dtype in (dtypes or {}).items()
        if isinstance(dtype, (list, tuple)) or getattr(dtype, "categories", None) is not None
    }


def _floats(edges: Iterable[float]) -> list[float]:
    try:
        return [float(edge) for edge in edges]
    except TypeError:
        raise ValueError(f"bins={edges!r}: expected a list of edges, or a dict of them by column") from None
