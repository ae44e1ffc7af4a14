"""DataFrames of other libraries: Dask, Modin, Spark, Daft. Loaded into memory, as Ray does into its object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme import _core
from trireme._extras import import_extra
from trireme.data._datasource import batches_of
from trireme.data._memory import from_arrow, from_pandas
from trireme.data._methods import DatasetMethods

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


def from_dask(df: Any) -> Dataset:
    """A dask.dataframe.DataFrame. A fragment is a partition."""
    dask = import_extra("from_dask", "dask", "dask")
    _check("from_dask", df, "dask.dataframe.DataFrame", hasattr(df, "to_delayed"))
    return from_pandas(list(dask.compute(*df.to_delayed())))


def from_modin(df: Any) -> Dataset:
    """A modin.pandas.DataFrame."""
    import_extra("from_modin", "modin", "modin")
    _check("from_modin", df, "modin.pandas.DataFrame", type(df).__module__.startswith("modin."))
    return from_pandas(df.modin.to_pandas() if hasattr(df.modin, "to_pandas") else df._to_pandas())


def from_spark(df: Any, *, parallelism: int | None = None, override_num_blocks: int | None = None) -> Dataset:
    """A pyspark.sql.DataFrame of Spark 4 or later."""
    import_extra("from_spark", "pyspark", "spark")
    _check("from_spark", df, "pyspark.sql.DataFrame", hasattr(df, "toArrow"))
    return from_arrow(df.toArrow(), override_num_blocks=override_num_blocks or parallelism)


def from_daft(df: Any) -> Dataset:
    """A daft.DataFrame."""
    import_extra("from_daft", "daft", "daft")
    _check("from_daft", df, "daft.DataFrame", hasattr(df, "to_arrow"))
    return from_arrow(df.to_arrow())


class ExchangeMethods(DatasetMethods):
    def to_dask(self, npartitions: int | None = None, **others: Any) -> Any:
        """A dask.dataframe.DataFrame of all rows. npartitions: default one for each fragment."""
        import_extra("to_dask", "dask", "dask")
        frames = import_extra("to_dask", "dask.dataframe", "dask")
        _check_meta("to_dask", others)
        count = npartitions or max(len(self._plan.pieces()), 1)
        return frames.from_pandas(self.to_pandas(), npartitions=count)  # type: ignore[attr-defined]

    def to_modin(self) -> Any:
        """A modin.pandas.DataFrame of all rows."""
        frames = import_extra("to_modin", "modin.pandas", "modin")
        return frames.DataFrame(self.to_pandas())  # type: ignore[attr-defined]

    def to_spark(self, spark: Any) -> Any:
        """A DataFrame of this pyspark.sql.SparkSession (Spark 4 or later)."""
        import_extra("to_spark", "pyspark", "spark")
        return spark.createDataFrame(self._table())

    def to_daft(self) -> Any:
        """A daft.DataFrame of all rows."""
        return import_extra("to_daft", "daft", "daft").from_arrow(self._table())

    # Trireme has no object store, and therefore no references to blocks.

    def to_pandas_refs(self) -> Any:
        raise _no_refs("to_pandas_refs", "to_pandas() returns one DataFrame, iter_batches(batch_format='pandas') many")

    def to_numpy_refs(self, *, column: str | None = None) -> Any:
        raise _no_refs("to_numpy_refs", "iter_batches() returns dicts of arrays")

    def to_arrow_refs(self) -> Any:
        raise _no_refs("to_arrow_refs", "to_arrow() returns one table, iter_batches(batch_format='pyarrow') many")

    def get_internal_block_refs(self) -> Any:
        raise _no_refs("get_internal_block_refs", "iter_batches(batch_format='pyarrow') returns tables")

    def iter_internal_ref_bundles(self) -> Any:
        raise _no_refs("iter_internal_ref_bundles", "iter_batches(batch_format='pyarrow') returns tables")


def from_pandas_refs(dfs: Any) -> Dataset:
    raise _no_refs("from_pandas_refs", "pass the DataFrames to from_pandas()")


def from_numpy_refs(ndarrays: Any) -> Dataset:
    raise _no_refs("from_numpy_refs", "pass the arrays to from_numpy()")


def from_arrow_refs(tables: Any) -> Dataset:
    raise _no_refs("from_arrow_refs", "pass the tables to from_arrow()")


def from_blocks(blocks: Any) -> Dataset:
    """Blocks: tables, DataFrames, dicts of arrays, or lists of rows. A fragment is a block."""
    return from_arrow([pa.Table.from_batches(batches_of(block)) for block in blocks])


def _no_refs(name: str, instead: str) -> NotImplementedError:
    return NotImplementedError(f"{name}: Trireme has no object store and no references to blocks; {instead}")


def _check(name: str, df: Any, expected: str, is_one: bool) -> None:
    if not is_one:
        raise _core.ConfigError(f"{name}: expected a {expected}, got {type(df).__module__}.{type(df).__name__}")


def _check_meta(name: str, others: Any) -> None:
    for option in others:
        if option not in ("meta", "verify_meta"):  # Dask infers them from the rows
            raise TypeError(f"{name}() has no argument {option!r}")
