from __future__ import annotations

from typing import Any


def normalize_pandas_for_lightgbm(df: Any) -> Any:
    """A DataFrame whose Arrow-backed columns of numbers and booleans have pandas' own nullable types, which LightGBM
    accepts."""
    import pandas as pd

    def plain(kind: Any) -> Any:
        return pd.array([], dtype=kind.numpy_dtype).dtype.name.capitalize()

    changed = {
        name: plain(kind).replace("Uint", "UInt").replace("Bool", "boolean")
        for name, kind in df.dtypes.items()
        if isinstance(kind, pd.ArrowDtype) and kind.kind in "iufb"
    }
    return df.astype(changed) if changed else df
