"""Ray's DataConfig."""

from __future__ import annotations

from typing import Any

import trireme
from trireme.compat.ray._refusal import refusal


class DataConfig(trireme.DataConfig):
    """Every worker gets the same number of rows, and the remainder is dropped, as in Ray."""

    def __init__(
        self,
        datasets_to_split: Any = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
        **ours: Any,
    ) -> None:
        if datasets_to_split != "all" and not isinstance(datasets_to_split, list):
            raise TypeError(
                f"DataConfig(datasets_to_split={datasets_to_split!r}): expected 'all' or a list of dataset names"
            )
        ours.setdefault("equal", True)
        if execution_options is not None and not ours.keys() & {"num_threads", "memory_budget"}:
            ours |= _limits(execution_options)
        super().__init__(datasets_to_split=datasets_to_split, **ours)
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "configure" in vars(cls):
            raise refusal(
                f"{cls.__name__}.configure()",
                "divide datasets with datasets_to_split; a worker reads what the trainer gives it",
            )

    @staticmethod
    def default_ingest_options() -> Any:
        from trireme.data import ExecutionOptions

        return ExecutionOptions()


def _limits(options: Any) -> dict[str, Any]:
    """Only the limits for all datasets together: a worker has one budget."""
    if isinstance(options, dict):
        return {}
    memory = options.resource_limits.object_store_memory
    return {} if memory is None else {"memory_budget": int(memory)}
