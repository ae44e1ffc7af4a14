"""What the core needs to know of a dataset to check a job."""

from __future__ import annotations

from typing import Any


def described(planned: Any) -> dict[str, Any]:
    return {"rows": planned.rows, "columns": {field.name: _kind(field.type) for field in planned.schema}}


def with_groups(name: str, description: dict[str, Any], dataset: Any, column: str, enough: int) -> dict[str, Any]:
    """Also with the number of query groups. Reads the group column until there are enough, usually a batch. If it would
    call functions of the user, the workers count."""
    if enough == 1 or column not in description["columns"] or dataset.plan().has_functions:
        return description
    from trireme._boosting._rows import check_group

    found: set[Any] = set()
    for batch in dataset.select_columns([column]).iter_batches(batch_size=65_536, batch_format="pyarrow"):
        values = batch.column(column)
        check_group(name, column, values.type)
        found.update(value for value in values.unique().to_pylist() if value is not None)
        if len(found) >= enough:
            break
    return {**description, "groups": len(found)}


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
