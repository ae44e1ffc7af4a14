"""What the core needs to know of a dataset to check a job."""

from __future__ import annotations

from typing import Any


def described(planned: Any) -> dict[str, Any]:
    return {"rows": planned.rows, "columns": {field.name: _kind(field.type) for field in planned.schema}}


def _kind(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "category"
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    return str(kind)
