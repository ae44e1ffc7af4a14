"""User functions in function processes: order, state, deaths and cleanup."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

import processes  # noqa: E402
import trireme  # noqa: E402
from trireme.data import _function_processes  # noqa: E402
from trireme.data._fragment import DataError, Where  # noqa: E402
from trireme.data._function_process import FunctionFailed  # noqa: E402
from trireme.data._function_processes import run_functions  # noqa: E402
from trireme.data._functions import FilterRows, FlatMap, Function, Map, MapBatches  # noqa: E402

WHERE = Where("part-0.parquet, row group 2")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    _function_processes.close()


def numbers(*sizes: int, begin: int = 0) -> Iterator[Any]:
    for size in sizes:
        yield pa.record_batch({"x": list(range(begin, begin + size))})
        begin += size


def run(*ops: Function, sizes: tuple[int, ...] = (4, 4, 2)) -> list[Any]:
    return list(run_functions(ops, numbers(*sizes), WHERE))


def column(batches: list[Any], name: str = "x") -> list[Any]:
    return [value for batch in batches for value in batch[name].to_pylist()]


def raised(*ops: Function, sizes: tuple[int, ...] = (4, 4, 2)) -> DataError:
    with pytest.raises(DataError) as caught:
        run(*ops, sizes=sizes)
    return caught.value


def with_pid(batch: Any) -> Any:
    return {"x": batch["x"], "pid": [os.getpid()] * len(batch["x"])}


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def function_processes() -> list[int]:
    return [process.pid for process in processes.left_over()]


def test_the_order_does_not_depend_on_the_speed_of_readers(tmp_path: Path) -> None:
    def slow(batch: Any) -> Any:
        import random

        time.sleep(random.random() * 0.02)
        return with_pid(batch)

    op = MapBatches(slow, concurrency=3)
    made = run(op, sizes=(5,) * 60)
    assert column(made) == list(range(300))
    pids = set(column(made, "pid"))
    assert len(pids) == 3 and os.getpid() not in pids
    assert set(column(run(op), "pid")) <= pids, "the processes are reused"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_results_do_not_depend_on_the_number_of_processes(concurrency: int) -> None:
    def sizes(batch: Any) -> Any:
        return {"x": batch["x"], "size": [len(batch["x"])] * len(batch["x"])}

    def twice(row: Any) -> Any:
        yield row
        yield {**row, "x": -row["x"]}

    here = [MapBatches(sizes, batch_size=7), FilterRows(lambda row: row["x"] % 5), FlatMap(twice)]
    there = [MapBatches(sizes, batch_size=7, concurrency=concurrency), *here[1:]]
    last = MapBatches(sizes, batch_size=10)
    given = (3, 50, 1, 0, 200, 11)
    expected = run(*here, last, sizes=given)
    made = run(*there, last, sizes=given)
    assert [batch.to_pydict() for batch in made] == [batch.to_pydict() for batch in expected]
    assert [batch.num_rows for batch in made[:-1]] == [10] * (len(made) - 1)


def test_many_threads_read_at_the_same_time() -> None:
    op = MapBatches(with_pid, concurrency=2)
    failures: list[BaseException] = []
    suspended = run_functions((op,), numbers(*(3,) * 50), WHERE)
    next(suspended)  # a suspended reader does not block others

    def read(index: int) -> None:
        try:
            for _ in range(5):
                made = list(run_functions((op,), numbers(*(3,) * 40, begin=1000 * index), WHERE))
                assert column(made) == list(range(1000 * index, 1000 * index + 120))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=[index]) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert column(list(suspended)) == list(range(3, 150))


def test_a_class_keeps_its_state_in_its_process() -> None:
    class Counter:
        def __init__(self, begin: int) -> None:
            self.calls = begin
            self.kept: list[Any] = []

        def __call__(self, batch: Any) -> Any:
            self.calls += 1
            self.kept.append(batch["x"])
            return {"call": [self.calls] * len(batch["x"]), "sum": [sum(int(kept.sum()) for kept in self.kept)] * 1}

    op = MapBatches(Counter, fn_constructor_args=[100], batch_size=1, concurrency=1)
    made = run(op, sizes=(30,))
    assert column(made, "call") == list(range(101, 131))
    # Batches that the instance keeps do not change, although their memory is reused.
    assert column(made, "sum") == [sum(range(n + 1)) for n in range(30)]
    again = run(op, sizes=(30,))
    assert column(again, "sum") == [435 + sum(range(n + 1)) for n in range(30)]
    lists = MapBatches(Counter, fn_constructor_args=[0], concurrency=1)
    with pytest.raises(DataError):
        run(lists, sizes=(2,))


def test_batches_that_are_kept_do_not_change() -> None:
    op = MapBatches(lambda batch: batch, concurrency=1)
    made = run(op, sizes=(500,) * 100)  # more than can be lent
    run(op, sizes=(500,) * 100)
    assert column(made) == list(range(50000))
    part = made[3].slice(10, 5)
    del made
    run(op, sizes=(500,) * 100)
    assert part["x"].to_pylist() == list(range(1510, 1515))


def test_big_batches_and_types_of_every_kind() -> None:
    big = pa.record_batch({"x": np.arange(13_000_000, dtype=np.float64)})
    op = MapBatches(lambda batch: batch, batch_format="pyarrow", concurrency=1)
    for _ in range(2):
        made = list(run_functions((op,), iter([big, big.slice(5, 10)]), WHERE))
        assert sum(batch.num_rows for batch in made) == 13_000_010
        assert made[0].equals(big) and made[-1].equals(big.slice(5, 10))
        del made
    kinds = pa.record_batch(
        {
            "text": ["a", None, "ccc"],
            "words": pa.array(["u", "v", "u"]).dictionary_encode(),
            "list": [[1], [], None],
            "struct": [{"a": 1}, None, {"a": 3}],
            "flag": [True, None, False],
            "bytes": [b"1", b"", None],
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2)),
        }
    )
    (same,) = run_functions((op,), iter([kinds]), WHERE)
    assert same.equals(kinds)


def test_a_generator_may_change_the_schema() -> None:
    def parts(batch: Any) -> Iterator[Any]:
        yield {"x": batch["x"]}
        yield {"y": ["a", "b"]}
        yield {"y": [None]}

    made = run(MapBatches(parts, concurrency=1), sizes=(2,))
    assert [batch.to_pydict() for batch in made] == [{"x": [0, 1]}, {"y": ["a", "b"]}, {"y": [None]}]
    assert run(FlatMap(lambda row: [], concurrency=1)) == []


def test_an_exception_comes_back_with_its_type_and_traceback() -> None:
    def fail(row: Any) -> Any:
        if row["x"] == 7:
            raise KeyError("no such thing")
        return row

    error = raised(Map(lambda row: row), Map(fail, concurrency=2))
    place = "row 7 of part-0.parquet, row group 2"
    assert str(error) == f"map(fail) failed on {place}: KeyError: 'no such thing'"
    assert isinstance(error.__cause__, KeyError)
    note = error.__notes__[0]
    assert 'raise KeyError("no such thing")' in note and "trireme/data" not in note


def test_an_exception_that_cannot_travel() -> None:
    class Strange(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(f"{first} and {second}")

    def fail(batch: Any) -> Any:
        raise Strange(1, 2)

    error = raised(MapBatches(fail, concurrency=1))
    assert "map_batches(fail) failed on rows 0 to 3 of part-0.parquet, row group 2: Strange: 1 and 2" in str(error)
    assert isinstance(error.__cause__, FunctionFailed) and "raise Strange(1, 2)" in error.__notes__[0]


def test_processes_survive_an_exception() -> None:
    op = MapBatches(lambda batch: with_pid(batch) if batch["x"][0] < 100 else 1 / 0, concurrency=2)
    before = set(column(run(op, sizes=(4,) * 20), "pid"))
    assert "ZeroDivisionError" in str(raised(op, sizes=(40, 40, 40, 40, 40)))
    assert set(column(run(op, sizes=(4,) * 20), "pid")) <= before


def test_work_of_a_process_that_dies_is_done_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def dies_twice(batch: Any) -> Any:
        for attempt in range(2):
            with contextlib.suppress(FileExistsError):
                if 25 in batch["x"]:
                    (tmp_path / str(attempt)).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
        return batch

    assert column(run(MapBatches(dies_twice, concurrency=2), sizes=(10,) * 30)) == list(range(300))
    told = [line for line in capfd.readouterr().err.splitlines() if "its function process" in line]
    assert len(told) == 2
    place = "map_batches(dies_twice) on rows 20 to 29 of part-0.parquet, row group 2: its function process (pid "
    assert all(place in line and "died of SIGKILL; a new one repeats the work" in line for line in told)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "exit"])
def test_a_function_that_kills_its_process_every_time(how: str) -> None:
    def die(row: Any) -> Any:
        if row["x"] == 7:
            if how == "exit":
                raise SystemExit(3)
            os.kill(os.getpid(), signal.Signals[how])
        return row

    error = raised(FilterRows(lambda row: row["x"] % 2), Map(die, concurrency=2))
    assert str(error).startswith("map(die) on row 7 of part-0.parquet, row group 2: its function process (pid ")
    assert f"{'exited with code 3' if how == 'exit' else f'died of {how}'}, for the 3rd time" in str(error)
    assert ("smaller batch_size" in str(error)) == (how == "SIGKILL")


def test_processes_killed_between_calls_are_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    op = MapBatches(with_pid, concurrency=2)
    stream = run_functions((op,), numbers(*(2,) * 40), WHERE)
    first = next(stream)
    for pid in function_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # also the host: its children exit with it
    assert processes.wait_until(lambda: not function_processes())
    assert column([first, *stream]) == list(range(80))
    assert set(column(run(op), "pid")) & set(function_processes())


def test_kills_in_the_midst_of_everything() -> None:
    def work(batch: Any) -> Any:
        time.sleep(0.002)
        return {"x": batch["x"] + 1}

    op = MapBatches(work, concurrency=3)
    failures: list[BaseException] = []
    killed: set[int] = set()
    finished = [0, 0, 0]

    def read(index: int) -> None:
        try:
            while len(killed) < 8:
                assert column(list(run_functions((op,), numbers(*(3,) * 30), WHERE))) == list(range(1, 91))
                finished[index] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=[index]) for index in range(3)]
    for thread in threads:
        thread.start()
    assert processes.wait_until(lambda: len(function_processes()) == 4)
    host = [p.pid for p in processes.left_over() if p.parent == os.getpid()]
    for _ in range(8):
        # Slow enough for each process to finish its current work, so that the same work is not killed repeatedly.
        before = list(finished)
        assert processes.wait_until(lambda b=before: failures or all(map(int.__gt__, finished, b)))
        victims: list[int] = []
        assert processes.wait_until(lambda v=victims: v.extend({*function_processes()} - {*host} - killed) or v)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victims[0], signal.SIGKILL)
        killed.add(victims[0])
    for thread in threads:
        thread.join(60)
    assert not failures and len(killed) == 8


def test_functions_of_a_script_and_of_modules_beside_it(script: Any) -> None:
    script.write("def triple(x):\n    return 3 * x\n", "beside.py")
    done = script.run(
        """
        import sys
        import pyarrow as pa
        from beside import triple
        from trireme.data._fragment import Where
        from trireme.data._function_processes import run_functions
        from trireme.data._functions import MapBatches

        FACTOR = 7

        class Scale:
            def __init__(self):
                self.factor = FACTOR

            def __call__(self, batch):
                print("called", sys.argv[1], flush=True)
                return {"x": triple(batch["x"]) * self.factor}

        if __name__ == "__main__":
            op = MapBatches(Scale, concurrency=1)
            given = iter([pa.record_batch({"x": [1, 2]})])
            print([batch.to_pydict() for batch in run_functions((op,), given, Where("here"))])
        """,
        "an argument",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["called an argument", "[{'x': [21, 42]}]"]
    assert processes.wait_until(lambda: not function_processes()), "it exited, but its processes did not"


def test_what_cannot_travel_is_named() -> None:
    lock = threading.Lock()

    def locked(batch: Any) -> Any:
        with lock:
            return batch

    with pytest.raises(TypeError, match=r"map_batches\(locked\) cannot be sent .*'lock', a lock, cannot be pickled"):
        run(MapBatches(locked, concurrency=1))


def test_a_function_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "goes_away.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import goes_away

    (tmp_path / "goes_away.py").unlink()
    error = raised(MapBatches(goes_away.same, concurrency=1))
    assert "map_batches(same) cannot be loaded in a function process: ModuleNotFoundError" in str(error)


def test_a_dataset_with_functions_inside_of_a_function() -> None:
    inner = Map(lambda row: {"x": row["x"] + 1}, concurrency=2)

    def outer(batch: Any) -> Any:
        return next(run_functions((inner,), iter([pa.record_batch({"x": batch["x"]})]), Where("inner")))

    assert column(run(MapBatches(outer, concurrency=1))) == list(range(1, 11))


def test_a_reader_that_stops_early_reads_no_further_rows() -> None:
    op = MapBatches(with_pid, concurrency=2)
    list(run_functions((op,), numbers(*(2,) * 40), WHERE))
    before = open_files()
    for _ in range(50):
        stream = run_functions((op,), numbers(*(2,) * 40), WHERE)
        next(stream)
        stream.close()
    assert column(run(op)) == list(range(10))
    assert open_files() <= before + 8


def test_nothing_is_left_after_close() -> None:
    run(MapBatches(with_pid, concurrency=1))
    _function_processes.close()
    before = open_files()
    for _ in range(2):
        op = MapBatches(with_pid, concurrency=3)
        held = run(op, sizes=(100,) * 50)
        with pytest.raises(DataError):
            run(Map(lambda row: 1 / 0, concurrency=2))
        assert len(function_processes()) >= 2
        _function_processes.close((op,))
        _function_processes.close()
        assert column(held) == list(range(5000)), "batches that were read are still valid"
        del held
        assert processes.wait_until(lambda: not function_processes())
        assert processes.wait_until(lambda: open_files() == before), open_files()
    assert not [p for p in Path("/proc").glob("[0-9]*/stat") if _is_zombie_of_this_process(p)]
    assert "trireme_functions" not in Path("/proc/self/maps").read_text()


def _is_zombie_of_this_process(stat: Path) -> bool:
    try:
        state, parent = stat.read_text().rpartition(") ")[2].split()[:2]
    except OSError:
        return False
    return state == "Z" and int(parent) == os.getpid()


def test_processes_go_with_the_functions() -> None:
    op: Any = MapBatches(with_pid, concurrency=2)
    run(op)
    assert function_processes()
    del op
    gc.collect()
    assert processes.wait_until(lambda: not function_processes())


def test_close_ends_those_who_wait() -> None:
    begun = threading.Barrier(3)

    def given() -> Iterator[Any]:
        yield from numbers(2)
        begun.wait(60)
        yield from numbers(2, 2)

    op = MapBatches(lambda batch: time.sleep(600), concurrency=3)
    caught: list[BaseException] = []

    def read() -> None:
        try:
            list(run_functions((op,), given(), WHERE))
        except BaseException as error:
            caught.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    _function_processes.close()
    for thread in threads:
        thread.join(60)
    assert len(caught) == 2 and all("closed while it was being read" in str(error) for error in caught)


def fit(train: Any, **options: Any) -> Any:
    run_config = trireme.RunConfig(
        name="run", worker_runtime_env={"env_vars": {"TRIREME_FUNCTION_HOST": "2"}}, **options
    )
    scaling = trireme.ScalingConfig(num_workers=1)
    return trireme.DataParallelTrainer(train, scaling_config=scaling, run_config=run_config).fit()


def test_functions_of_a_worker_run_in_separate_processes(results: Path) -> None:
    def train() -> dict[str, Any]:
        def tell(batch: Any) -> Any:
            print("said by a function")
            with open("/proc/self/stat") as stat:
                parent = int(stat.read().rpartition(") ")[2].split()[1])
            return {**with_pid(batch), "host": [parent] * len(batch["x"])}

        made = run(MapBatches(tell), sizes=(5,) * 40)
        with open(f"/proc/{made[0]['host'][0].as_py()}/stat") as stat:
            grandparent = int(stat.read().rpartition(") ")[2].split()[1])
        threads = [len(os.listdir(f"/proc/{pid}/task")) for pid in set(column(made, "host"))]
        return {
            "x": column(made),
            "pids": sorted(set(column(made, "pid"))),
            "hosts": len(set(column(made, "host"))),
            "worker": os.getpid() == grandparent,
            "threads": threads,
        }

    result = fit(train)
    value = result.return_value
    assert value["x"] == list(range(200)) and len(value["pids"]) == 2
    assert value["hosts"] == 1 and value["worker"] and value["threads"] == [1]
    logs = "".join(path.read_text() for path in Path(result.path).rglob("*.log"))
    assert logs.count("said by a function") == 40


def test_function_processes_end_with_a_killed_worker(results: Path) -> None:
    def train() -> None:
        op = MapBatches(lambda batch: {"pid": [os.getpid(), os.getppid()]})
        host = column(run(op, sizes=(2,)), "pid")
        with contextlib.suppress(FileExistsError):
            with open(os.path.join(trireme.get_context().get_trial_dir(), "pids"), "x") as file:
                file.write(" ".join(map(str, host)))
            os.kill(os.getpid(), signal.SIGKILL)
        with open(os.path.join(trireme.get_context().get_trial_dir(), "pids")) as file:
            gone = [int(pid) for pid in file.read().split()]
        assert processes.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in gone))

    fit(train, failure_config=trireme.FailureConfig(max_failures=1))


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_child_that_a_function_forks_does_not_answer(how: str) -> None:
    def forks(batch: Any) -> Any:
        child = os.fork()
        if child == 0:
            if how == "raises":
                raise ValueError("of the child")
            return {"x": [-1] * len(batch["x"])}
        return {"x": batch["x"], "status": [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] * len(batch["x"])}

    made = run(MapBatches(forks, concurrency=1))
    assert column(made) == list(range(10))
    assert set(column(made, "status")) == {1 if how == "raises" else 0}


@pytest.fixture
def meeting(tmp_path: Path) -> Any:
    """A function whose first four calls wait for each other, once begun: it only returns if four are active at once."""
    arrived = tmp_path / "arrived"

    def meet(batch: Any) -> Any:
        if arrived.exists():
            (arrived / str(batch["x"][0])).touch()
            until = time.monotonic() + 300
            while len(os.listdir(arrived)) < 4:
                if time.monotonic() > until:
                    raise TimeoutError(f"{len(os.listdir(arrived))} of 4 calls are active")
                time.sleep(0.01)
        return batch

    meet.begin = arrived.mkdir  # type: ignore[attr-defined]
    return meet


def sixteen_batches(layout: str, tmp_path: Path) -> Any:
    table = pa.table({"x": list(range(64))})
    if layout == "one fragment":
        return trireme.data.from_arrow(table)
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "x.parquet", row_group_size=4)
    return trireme.data.read_parquet(str(tmp_path / "x.parquet"))


CONSUMERS = {
    "materialize": lambda ds, path: ds.materialize().to_pandas()["x"].tolist(),
    "to_pandas": lambda ds, path: ds.to_pandas()["x"].tolist(),
    "iter_batches": lambda ds, path: [x for batch in ds.iter_batches(batch_size=4) for x in batch["x"].tolist()],
    "write_parquet": lambda ds, path: (
        ds.write_parquet(str(path / "out")),
        trireme.data.read_parquet(str(path / "out")).to_pandas()["x"].tolist(),
    )[1],
    "count": lambda ds, path: list(range(ds.count())),
}


@pytest.mark.parametrize("layout", ["one fragment", "a fragment for each batch"])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_concurrency_is_the_number_of_calls_at_once(consumer: str, layout: str, meeting: Any, tmp_path: Path) -> None:
    counted = consumer == "count"
    data = sixteen_batches(layout, tmp_path).map_batches(
        meeting, batch_size=4, concurrency=4, udf_modifying_row_count=counted
    )
    data.schema()
    meeting.begin()
    assert CONSUMERS[consumer](data, tmp_path) == list(range(64))


@pytest.mark.parametrize("verb", ["map", "map_batches"])
def test_few_slow_calls_are_shared_by_the_processes(verb: str, meeting: Any) -> None:
    def meet(given: Any) -> Any:
        return meeting(given) if verb == "map_batches" else {"x": meeting({"x": [given["x"]]})["x"][0]}

    meeting.begin()
    op = Map(meet, concurrency=4) if verb == "map" else MapBatches(meet, batch_size=1, concurrency=4)
    assert column(run(op, sizes=(16,))) == list(range(16))


@pytest.mark.parametrize("layout", ["one fragment", "a fragment for each batch"])
def test_concurrency_in_a_worker(layout: str, meeting: Any, tmp_path: Path, results: Path) -> None:
    def train() -> list[int]:
        meeting.begin()
        batches = trireme.get_dataset_shard("train").iter_batches(batch_size=4)
        return [x for batch in batches for x in batch["x"].tolist()]

    data = sixteen_batches(layout, tmp_path).map_batches(
        meeting, batch_size=4, concurrency=4, udf_modifying_row_count=False
    )
    result = trireme.DataParallelTrainer(
        train, scaling_config=trireme.ScalingConfig(num_workers=1), datasets={"train": data}
    ).fit()
    assert sorted(result.return_value) == list(range(64))


def test_later_fragments_get_only_idle_processes() -> None:
    """So that what is read ahead does not grow with the number of fragments."""
    release = threading.Event()
    taken = [0] * 8
    op = MapBatches(lambda batch: batch, concurrency=2)

    def units(fragment: int) -> Iterator[Any]:
        for batch in numbers(*(1,) * 50):
            taken[fragment] += 1
            yield batch

    streams = [run_functions((op,), units(fragment), WHERE) for fragment in range(8)]

    def read(stream: Iterator[Any]) -> None:
        next(stream)
        release.wait(60)
        assert sum(1 for _ in stream) == 49

    failures: list[BaseException] = []

    def checked(stream: Iterator[Any]) -> None:
        try:
            read(stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=checked, args=[stream]) for stream in streams]
    for thread in threads:
        thread.start()
    assert processes.wait_until(lambda: all(taken))
    assert sorted(taken)[:-1] <= [2] * 7 and max(taken) <= 4, taken
    release.set()
    for thread in threads:
        thread.join(60)
    assert not failures and taken == [50] * 8
