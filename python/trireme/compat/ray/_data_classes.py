"""Classes of ray.data with parameters that Trireme's classes do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trireme.compat.ray._refusal import refusal
from trireme.data import aggregate, datasource


class _WithZero:
    """zero_factory: the neutral element of Ray's accumulator. It has no effect: Arrow needs none."""

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)  # type: ignore[call-arg]


class AbsMax(_WithZero, aggregate.AbsMax):
    pass


class Max(_WithZero, aggregate.Max):
    pass


class Min(_WithZero, aggregate.Min):
    pass


class Unique(aggregate.Unique):
    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: Any = None,
    ) -> None:
        if encode_lists:
            raise refusal(
                "Unique(encode_lists=...)",
                "make a row of each element with Dataset.flat_map(), and use Unique after it",
            )
        super().__init__(on, ignore_nulls, alias_name)


class FileBasedDatasource(datasource.FileBasedDatasource):
    def __init__(
        self,
        paths: Any,
        *,
        schema: Any = None,
        open_stream_args: dict[str, Any] | None = None,
        meta_provider: Any = None,
        **options: Any,
    ) -> None:
        if schema is not None:
            raise refusal("FileBasedDatasource(schema=...)", "return blocks of that schema from _read_stream()")
        if meta_provider is not None:
            raise refusal("FileBasedDatasource(meta_provider=...)", "pass file_extensions=... or a list of paths")
        if open_stream_args:
            options["arrow_open_stream_args"] = open_stream_args
        super().__init__(paths, **options)


class PathPartitionFilter(datasource.PathPartitionFilter):
    def __init__(self, path_partition_parser: Any = None, filter_fn: Any = None) -> None:
        if filter_fn is not None or not callable(path_partition_parser):
            raise refusal(
                "PathPartitionFilter(path_partition_parser, filter_fn)", "use PathPartitionFilter.of(filter_fn)"
            )
        super().__init__(path_partition_parser)  # by of()
