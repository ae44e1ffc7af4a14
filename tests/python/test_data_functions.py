"""map(), map_batches(), flat_map(), filter() and add_column() on batches, in this process."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from trireme.data._cut import exact_batches, first_row, stages  # noqa: E402
from trireme.data._fragment import DataError, Where  # noqa: E402
from trireme.data._function_processes import run_functions  # noqa: E402
from trireme.data._functions import (  # noqa: E402
    ActorPoolStrategy,
    AddColumn,
    FilterRows,
    FlatMap,
    Function,
    Map,
    MapBatches,
    TaskPoolStrategy,
)

WHERE = Where("part-0.parquet, row group 2")


def numbers(*sizes: int) -> Iterator[Any]:
    """Batches of a column x that counts from 0."""
    begin = 0
    for size in sizes:
        yield pa.record_batch({"x": list(range(begin, begin + size))})
        begin += size


def run(*ops: Function, sizes: tuple[int, ...] = (4, 4, 2), where: Where = WHERE) -> list[Any]:
    return list(run_functions(ops, numbers(*sizes), where))


def rows(batches: list[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def column(batches: list[Any], name: str = "x") -> list[Any]:
    return [row[name] for row in rows(batches)]


def raised(*ops: Function, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        run(*ops, **options)
    return caught.value


def test_map_gives_a_row_for_each() -> None:
    op = Map(lambda row, factor, plus: {"y": row["x"] * factor + plus}, fn_args=[10], fn_kwargs={"plus": 1})
    assert op.keeps_rows is True
    assert column(run(op), "y") == [x * 10 + 1 for x in range(10)]


def test_flat_map_takes_lists_and_generators() -> None:
    def times(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for index in range(row["x"] % 3):
            yield {"x": row["x"], "index": index}

    as_list = run(FlatMap(lambda row: list(times(row))))
    assert rows(as_list) == rows(run(FlatMap(times))) == [r for x in range(10) for r in times({"x": x})]
    assert FlatMap(times).keeps_rows is False
    assert run(FlatMap(lambda row: [])) == []


def test_filter_keeps_rows_as_they_are() -> None:
    op = FilterRows(lambda row: row["x"] % 3)
    assert column(run(op)) == [x for x in range(10) if x % 3]
    assert op.keeps_rows is False and op.schema(pa.schema([("x", pa.int8())])) == pa.schema([("x", pa.int8())])
    tiny = pa.record_batch({"x": pa.array([1, 2], pa.int8())})
    assert next(run_functions((op,), iter([tiny]), WHERE)).schema == tiny.schema


@pytest.mark.parametrize("batch_format", ["default", "numpy", "pandas", "pyarrow", None])
def test_formats_of_batches(batch_format: str | None) -> None:
    kinds = []

    def double(batch: Any) -> Any:
        kinds.append(type(batch))
        if isinstance(batch, pa.Table):
            return batch.set_column(0, "x", pa.array([2 * x.as_py() for x in batch["x"]]))
        return {"x": batch["x"] * 2} if isinstance(batch, dict) else batch * 2

    expected = {"pandas": pd.DataFrame, "pyarrow": pa.Table, None: pa.Table}.get(batch_format, dict)
    assert column(run(MapBatches(double, batch_format=batch_format))) == list(range(0, 20, 2))
    assert set(kinds) == {expected}


class Streamed:
    """Imitates polars and similar libraries."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table({"a": [1, 2], "b": ["x", None]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "result",
    [
        {"a": [1, 2], "b": ["x", None]},
        {"a": np.array([1, 2]), "b": np.array(["x", None], object)},
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pa.table({"a": [1, 2], "b": ["x", None]}),
        pa.record_batch({"a": [1, 2], "b": ["x", None]}),
        pa.concat_tables([pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [2], "b": pa.array([None], "string")})]),
        Streamed(),
    ],
    ids=lambda result: type(result).__name__,
)
def test_what_a_function_may_return(result: Any) -> None:
    made = run(MapBatches(lambda batch: result), sizes=(2,))
    assert rows(made) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_batches_without_rows() -> None:
    none = MapBatches(lambda frame: frame[frame["x"] > 100], batch_format="pandas")
    assert [batch.num_rows for batch in run(none)] == [0, 0, 0], "their types are known"
    assert run(MapBatches(lambda batch: {"y": []})) == run(MapBatches(lambda batch: {})) == []
    assert run(Map(lambda row: 1 / 0), MapBatches(lambda batch: 1 / 0), sizes=(0, 0)) == []


def test_tensors_go_in_and_out() -> None:
    def images(batch: dict[str, Any]) -> dict[str, Any]:
        return {"image": np.stack([np.full((2, 3), x, np.uint8) for x in batch["x"]])}

    def sums(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["image"].shape[1:] == (2, 3)
        return {"x": batch["image"].sum(axis=(1, 2)) // 6}

    assert column(run(MapBatches(images), MapBatches(sums, batch_size=3))) == list(range(10))
    assert column(run(MapBatches(images), Map(lambda row: {"x": int(row["image"].max())}))) == list(range(10))


def test_a_generator_makes_any_number_of_batches() -> None:
    def halves(batch: Any) -> Iterator[Any]:
        middle = len(batch["x"]) // 2
        yield {"x": batch["x"][:middle]}
        yield {"x": batch["x"][middle:]}

    made = run(MapBatches(halves, batch_size=4))
    assert [batch.num_rows for batch in made] == [2, 2, 2, 2, 1, 1] and column(made) == list(range(10))


class Adder:
    made = 0

    def __init__(self, plus: int, *, times: int = 1) -> None:
        type(self).made += 1
        self.plus, self.times, self.calls = plus, times, 0

    def __call__(self, batch: dict[str, Any], minus: int = 0) -> dict[str, Any]:
        self.calls += 1
        return {"x": batch["x"] * self.times + self.plus - minus, "call": [self.calls] * len(batch["x"])}

    def double(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"x": row["x"] * 2 + self.plus}


def test_a_class_is_made_once_and_keeps_its_state() -> None:
    Adder.made = 0
    options: dict[str, Any] = {"fn_constructor_args": [100], "fn_constructor_kwargs": {"times": 2}}
    op = MapBatches(Adder, batch_size=4, fn_kwargs={"minus": 1}, **options)
    assert Adder.made == 0
    made = run(op)
    assert Adder.made == 1
    assert column(made) == [x * 2 + 99 for x in range(10)] and column(made, "call") == [1] * 4 + [2] * 4 + [3] * 2
    run(op)
    assert Adder.made == 1
    assert column(run(cloudpickle.loads(cloudpickle.dumps(op))), "call")[0] == 1, "the instance was pickled"
    assert pickle.loads(pickle.dumps(op)).name == "map_batches(Adder)"


def test_methods_partials_and_objects_are_functions() -> None:
    assert column(run(Map(Adder(7).double))) == [2 * x + 7 for x in range(10)]
    assert Map(Adder(7).double).name == "map(Adder.double)"
    assert column(run(Map(functools.partial(lambda k, row: {"x": row["x"] + k}, 3)))) == list(range(3, 13))
    assert column(run(MapBatches(Adder(5)))) == list(range(5, 15))
    assert MapBatches(Adder(5)).name == "map_batches(Adder)"


@pytest.mark.parametrize("batch_format", ["pandas", "numpy", "pyarrow"])
def test_add_column(batch_format: str) -> None:
    def half(batch: Any) -> Any:
        return pa.compute.divide(batch["x"], 2.0) if isinstance(batch, pa.Table) else batch["x"] / 2

    import pyarrow.compute  # noqa: F401

    made = run(AddColumn("half", half, batch_format=batch_format))
    assert rows(made) == [{"x": x, "half": x / 2} for x in range(10)]
    assert rows(run(AddColumn("x", half, batch_format=batch_format))) == [{"x": x / 2} for x in range(10)]


def test_add_column_takes_lists_and_single_values() -> None:
    assert column(run(AddColumn("y", lambda frame: list(frame["x"]))), "y") == list(range(10))
    assert column(run(AddColumn("y", lambda frame: "a")), "y") == ["a"] * 10
    assert "returned 1 value for 4 rows, rows 0 to 3 of part-0.parquet" in str(raised(AddColumn("y", lambda f: [1])))
    assert "add_column('y', <lambda>) on rows 0 to 3" in str(raised(AddColumn("y", lambda frame: None)))


def test_batch_sizes_reach_over_the_edges_of_batches() -> None:
    seen: list[int] = []

    def see(batch: Any) -> Any:
        seen.append(len(batch["x"]))
        return batch

    assert column(run(MapBatches(see, batch_size=3), sizes=(1, 0, 1, 7, 1))) == list(range(10))
    assert seen == [3, 3, 3, 1]
    seen.clear()
    run(MapBatches(see), sizes=(1, 0, 7, 2))
    assert seen == [1, 7, 2]
    seen.clear()
    run(MapBatches(see, batch_size="auto"), sizes=(1000, 1000, 1000))
    assert seen == [1024, 1024, 952]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 40))
def test_exact_batches_hold_the_same_rows(sizes: list[int], size: int) -> None:
    made = list(exact_batches(numbers(*sizes), size))
    assert column(made) == list(range(sum(sizes)))
    assert all(batch.num_rows == size for batch in made[:-1]) and all(0 < batch.num_rows <= size for batch in made[-1:])


def identity(value: Any) -> Any:
    return value


SIZED = functools.partial(MapBatches, identity, udf_modifying_row_count=False)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([Map(identity)], [(1, 1)]),
        ([MapBatches(identity)], [(1, None)]),
        ([Map(identity), SIZED(batch_size=4), SIZED(batch_size=6)], [(3, 12)]),
        ([SIZED(batch_size=4), SIZED(), Map(identity)], [(3, 4)]),
        ([SIZED(), SIZED(batch_size=4)], [(1, None), (1, 4)]),
        ([FilterRows(identity), SIZED(batch_size=4)], [(1, 1), (1, 4)]),
        ([FilterRows(identity), SIZED()], [(2, None)]),
        ([MapBatches(identity, batch_size=4), SIZED(batch_size=4)], [(1, 4), (1, 4)]),
    ],
)
def test_functions_are_run_together_where_batch_sizes_allow(ops: list[Function], expected: list[Any]) -> None:
    assert [(len(stage.ops), stage.multiple) for stage in stages(ops)] == expected


def test_where_reading_begins_for_the_same_batches() -> None:
    assert first_row([Map(identity)], 77) == 77
    assert first_row([Map(identity), SIZED(batch_size=10)], 77) == 70
    assert first_row([SIZED()], 77) == 0
    assert first_row([FilterRows(identity), SIZED(batch_size=10)], 77) == 0


def test_batch_sizes_after_a_filter() -> None:
    seen: list[int] = []

    def see(batch: Any) -> Any:
        seen.append(len(batch["x"]))
        return batch

    made = run(FilterRows(lambda row: row["x"] % 2), MapBatches(see, batch_size=4), sizes=(10, 10, 3))
    assert column(made) == list(range(1, 23, 2)) and seen == [4, 4, 3]


def fails_on(number: int) -> Callable[[Any], Any]:
    def fail(row: Any) -> Any:
        if row["x"] == number:
            raise ValueError("no such thing")
        return row

    return fail


def test_an_exception_names_function_fragment_and_row() -> None:
    for op, result in [
        (Map(fails_on(7)), "map(fail)"),
        (FilterRows(fails_on(7)), "filter(fail)"),
        (FlatMap(lambda row: [fails_on(7)(row)]), "flat_map(<lambda>)"),
    ]:
        error = raised(op, where=Where("part-0.parquet, row group 2", 100))
        place = "row 107 of part-0.parquet, row group 2"
        assert str(error) == f"{result} failed on {place}: ValueError: no such thing"
        assert isinstance(error.__cause__, ValueError) and error.__cause__.__traceback__ is not None


def test_an_exception_in_a_generator() -> None:
    def yields(value: Any) -> Iterator[Any]:
        yield {"x": [1]}
        raise KeyError("gone")

    assert "flat_map(yields) failed on row 0 of" in str(raised(FlatMap(yields)))
    error = raised(MapBatches(yields, batch_size=3))
    assert str(error).startswith("map_batches(yields) failed on rows 0 to 2 of part-0") and "KeyError" in str(error)


def test_an_exception_of_map_batches_names_the_rows() -> None:
    error = raised(MapBatches(lambda batch: 1 / int(batch["x"][0] != 6), batch_size=2), Map(identity))
    assert "must return" in str(error), "1.0 is not a batch"
    error = raised(MapBatches(lambda batch: 1 / 0 if 6 in batch["x"] else batch, batch_size=2))
    place = "rows 6 to 7 of part-0.parquet, row group 2"
    assert str(error) == f"map_batches(<lambda>) failed on {place}: ZeroDivisionError: division by zero"


def test_an_exception_after_a_filter_names_its_row() -> None:
    error = raised(FilterRows(lambda row: row["x"] % 2), Map(fails_on(5)))
    of = "the output of filter(<lambda>) for rows 0 to 9 of part-0.parquet, row group 2"
    assert str(error) == f"map(fail) failed on row 2 of {of}: ValueError: no such thing"


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Map(lambda row: 5), "map(<lambda>) must return a dict with the columns of a row; for row 0 of part-0"),
        (Map(lambda row: None), "it returned None"),
        (FlatMap(lambda row: row), "must return a list of dicts, or a generator of them; for row 0"),
        (FlatMap(lambda row: [1]), "must return dicts; for row 0"),
        (FilterRows(lambda row: np.array([1, 2])), "must return True or False; for row 0"),
        (MapBatches(lambda batch: None), "must return a dict of arrays or lists, a pandas DataFrame, a pyarrow Table"),
        (MapBatches(lambda batch: [1, 2]), "for rows 0 to 3 of part-0.parquet, row group 2 it returned a list: [1, 2]"),
        (MapBatches(lambda batch: {"x": [1], "y": [1, 2]}), "map_batches(<lambda>) on rows 0 to 3 of part-0"),
    ],
)
def test_a_result_of_the_wrong_type(op: Function, message: str) -> None:
    assert message in str(raised(op))


def test_a_function_said_to_keep_rows_is_held_to_it() -> None:
    op = MapBatches(lambda batch: {"x": batch["x"][1:]})
    assert op.keeps_rows is None and len(rows(run(op))) == 7
    op.keeps_rows = True
    assert "returned 3 rows for 4, rows 0 to 3 of part-0" in str(raised(op))
    assert "map_batches(..., udf_modifying_row_count=True)" in str(raised(op))
    assert MapBatches(identity, udf_modifying_row_count=True).keeps_rows is False
    assert MapBatches(identity, udf_modifying_row_count=False).keeps_rows is True


def test_writing_into_a_batch_needs_a_copy() -> None:
    def double(batch: Any) -> Any:
        batch["x"] *= 2
        return batch

    error = raised(MapBatches(double))
    assert "zero_copy_batch=False" in str(error) and "read-only" in str(error)
    assert column(run(MapBatches(double, zero_copy_batch=False))) == list(range(0, 20, 2))


class NoCall:
    pass


async def coroutine(row: Any) -> Any:
    return row


def generator(row: Any) -> Iterator[Any]:
    yield row


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Map(5), TypeError, "map(fn): expected a function or a class, got int: 5"),
        (lambda: MapBatches(NoCall), TypeError, "the class NoCall has no __call__ method"),
        (lambda: Map(lambda: 1), ValueError, "map(<lambda>): <lambda>() is called with a row: too many positional"),
        (lambda: Map(lambda row, a: 1), ValueError, "missing a required argument: 'a'"),
        (lambda: Map(identity, fn_kwargs={"b": 1}), ValueError, "and fn_kwargs={'b': 1}"),
        (lambda: MapBatches(Adder), ValueError, "missing a required argument: 'plus'"),
        (lambda: Map(identity, fn_constructor_args=[1]), ValueError, "are for classes"),
        (lambda: Map(coroutine), TypeError, "coroutine is a coroutine"),
        (lambda: Map(generator), TypeError, "only map_batches and flat_map accept generators"),
        (lambda: MapBatches(identity, batch_size=0), ValueError, "map_batches(batch_size=0)"),
        (lambda: MapBatches(identity, batch_size=-3), ValueError, "expected a positive number of rows"),
        (lambda: MapBatches(identity, batch_size="big"), ValueError, "map_batches(batch_size='big')"),
        (lambda: MapBatches(identity, batch_size=True), ValueError, "map_batches(batch_size=True)"),
        (lambda: MapBatches(identity, batch_format="polars"), ValueError, "batch_format='polars'"),
        (lambda: Map(identity, concurrency=0), ValueError, "concurrency=0"),
        (lambda: Map(identity, concurrency=(1, 2, 3, 4)), ValueError, "(min, max)"),
        (lambda: Map(identity, compute="actors"), TypeError, "ActorPoolStrategy"),
        (lambda: Map(identity, compute=TaskPoolStrategy(2), concurrency=2), ValueError, "set only one of them"),
        (lambda: AddColumn(5, identity), TypeError, "add_column(col=5)"),
    ],
)
def test_bad_arguments_are_found_before_anything_starts(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


def test_how_many_processes() -> None:
    assert Map(identity).concurrency is None
    assert Map(identity, concurrency=3).concurrency == 3
    assert Map(identity, concurrency=(1, 4)).concurrency == Map(identity, concurrency=(1, 4, 2)).concurrency == 4
    assert Map(identity, compute=TaskPoolStrategy(2)).concurrency == 2
    assert Map(identity, compute=ActorPoolStrategy(min_size=1, max_size=5)).concurrency == 5
    assert Map(identity, compute=TaskPoolStrategy()).concurrency is None


def test_a_constructor_that_fails_is_named() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no model file")

        def __call__(self, batch: Any) -> Any:
            return batch

    error = raised(MapBatches(Broken))
    assert str(error) == "map_batches(Broken): Broken() failed: OSError: no model file"
    assert isinstance(error.__cause__, OSError)


def test_one_thread_at_a_time_calls_a_function() -> None:
    inside, most = 0, 0
    both = threading.Barrier(2)

    def count(batch: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(2000):
            pass
        inside -= 1
        return batch

    op = MapBatches(count, batch_size=1)

    def read() -> None:
        both.wait()
        assert column(run(op, sizes=(200,))) == list(range(200))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
