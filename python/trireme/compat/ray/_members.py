"""Members of Ray's classes that Trireme's classes do not have. Using one raises an error that names an alternative."""

from __future__ import annotations

from typing import Any, NoReturn

from trireme.compat.ray._refusal import refusal

_WRITE = "derive from ray.data.Datasink, or write with the system's own library in map_batches()"
_LINEAGE = "create the dataset from its files again"
_OF_DATASET = {
    "write_bigquery write_clickhouse write_kafka write_mongo write_snowflake write_turbopuffer": _WRITE,
    "write_orc": "use write_parquet(), or pyarrow.orc in a Datasink",
    "serialize_lineage deserialize_lineage has_serializable_lineage": _LINEAGE,
    "to_mars": "use to_pandas()",
    "to_random_access_dataset": "use to_pandas() and its index",
    "get_stats_summary": "use stats()",
}


class _Refused:
    """An AttributeError, so that hasattr() is False."""

    def __init__(self, name: str, advice: str) -> None:
        self._text = str(refusal(name, advice))

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(self._text)


def refuse_dataset_members() -> None:
    from trireme.data import Dataset

    for names, advice in _OF_DATASET.items():
        for name in names.split():
            setattr(Dataset, name, _Refused(f"ray.data.Dataset.{name}", advice))


def refuse_context_member(name: str) -> NoReturn:
    advice = "it describes Ray's cluster; ray.train.get_context() describes the workers"
    raise AttributeError(str(refusal(f"ray.get_runtime_context().{name}", advice)))
