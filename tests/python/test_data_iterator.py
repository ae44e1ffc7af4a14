"""DataIterator: order, position and memory, without a trainer."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trireme.data
from trireme import _core
from trireme.data._iterator import DataIterator, Part


def dataset(fragments: list[int]) -> Any:
    begin, tables = 0, []
    for rows in fragments:
        tables.append(pa.table({"x": np.arange(begin, begin + rows)}))
        begin += rows
    return trireme.data.from_arrow(tables)


class Gang:
    """The ranks of a run, taking turns."""

    def __init__(self, planned: Any, world: int, max_world: int, seed: int, shards: int | None, state: Any) -> None:
        self.iterators = [
            DataIterator(
                planned, Part(name="x", rank=rank, world=world, max_world=max_world, seed=seed, virtual_shards=shards)
            )
            for rank in range(world)
        ]
        for iterator in self.iterators:
            if state is not None:
                iterator.load_state(state)

    def take(self, options: dict[str, Any], most: int) -> tuple[int, list[list[int]], dict[str, Any]]:
        """The epoch, or its first global batches, and the position after them."""
        epoch = self.iterators[0].epoch
        passes = [iter(iterator.iter_batches(**options)) for iterator in self.iterators]
        batches: list[list[int]] = []
        for _ in range(most):
            parts = [next(each, None) for each in passes]
            assert all(part is None for part in parts) or all(part is not None for part in parts), "uneven steps"
            if parts[0] is None:
                break
            assert all(len(part["x"]) for part in parts if part)
            batches.append(sorted(x for part in parts if part for x in part["x"].tolist()))
        positions = [iterator._position() for iterator in self.iterators]
        assert all(position == positions[0] for position in positions)
        return epoch, batches, positions[0]


@settings(max_examples=40, deadline=None)
@given(
    fragments=st.lists(st.integers(1, 40), min_size=1, max_size=6).filter(lambda rows: sum(rows) >= 4),
    batch=st.integers(4, 50),
    shards=st.sampled_from([None, 1, 2, 3, 5]),
    shuffle=st.sampled_from([None, {}, {"window_rows": 7}]),
    local=st.sampled_from([None, 5]),
    attempts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=25),
    seed=st.integers(0, 2**62),
)
def test_no_sequence_of_kills_and_resizes_changes_a_batch(
    fragments: list[int],
    batch: int,
    shards: int | None,
    shuffle: dict[str, Any] | None,
    local: int | None,
    attempts: list[tuple[int, int]],
    seed: int,
) -> None:
    data = dataset(fragments)
    if shuffle is not None:
        data = data.random_shuffle(seed=3, **shuffle)
    planned = data.plan()
    options = {"global_batch_size": batch, "local_shuffle_buffer_size": local}
    expected, state = {}, None
    for _ in range(3):
        epoch, batches, state = Gang(planned, 1, 4, seed, shards, state).take(options, 10**6)
        assert sorted(x for each in batches for x in each) == list(range(sum(fragments)))
        expected[epoch] = batches
    seen: dict[int, list[list[int]]] = {}
    state = None
    for world, most in attempts:
        epoch, batches, state = Gang(planned, world, 4, seed, shards, state).take(options, most)
        seen.setdefault(epoch, []).extend(batches)
        if epoch >= 2:
            break
    for epoch, batches in seen.items():
        if epoch in expected:
            assert batches == expected[epoch][: len(batches)]


def test_the_order_of_a_dataset_that_is_not_shuffled_is_its_own() -> None:
    data = dataset([30, 50, 20])
    rows = [x for batch in data.iter_batches(batch_size=7) for x in batch["x"].tolist()]
    assert rows == list(range(100))
    assert [len(batch["x"]) for batch in data.iter_batches(batch_size=30)] == [30, 30, 30, 10]
    assert [len(batch["x"]) for batch in data.iter_batches(batch_size=None)] == [100]


def test_the_same_seed_gives_the_same_orders_and_another_epoch_another_one() -> None:
    def orders(seed: int) -> list[list[int]]:
        iterator = dataset([100, 100]).random_shuffle(seed=seed).iterator()
        return [[x for batch in iterator.iter_batches() for x in batch["x"].tolist()] for _ in range(2)]

    first, second = orders(1)
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second and first != list(range(200))
    assert orders(1) == [first, second]
    assert orders(2)[0] != first


def test_blocks_are_reordered_as_wholes() -> None:
    iterator = dataset([10] * 20).randomize_block_order(seed=4).iterator()
    rows = [x for batch in iterator.iter_batches() for x in batch["x"].tolist()]
    firsts = rows[::10]
    assert sorted(firsts) == list(range(0, 200, 10)) and firsts != sorted(firsts)
    assert all(
        rows[at : at + 10] == list(range(first, first + 10))
        for at, first in zip(range(0, 200, 10), firsts, strict=True)
    )


def test_a_state_by_hand() -> None:
    iterator = dataset([100]).random_shuffle(seed=2).iterator()
    batches = iter(iterator.iter_batches(batch_size=10))
    for _ in range(3):
        next(batches)
    state = iterator.state()
    order = {"seed": 2, "virtual_shards": 1, "window_rows": 100, "shuffle_fragments": True, "dataset_seed": 2}
    assert state == {"epoch": 0, "rows": 30, "size": 100, **order}
    rest = [batch["x"].tolist() for batch in batches]
    other = pickle.loads(pickle.dumps(dataset([100]).random_shuffle(seed=2).iterator()))
    other.load_state(state)
    assert [batch["x"].tolist() for batch in other.iter_batches(batch_size=10)] == rest
    with pytest.raises(ValueError, match="over 100 rows, but there are 50 now"):
        dataset([50]).iterator().load_state(state)
    with pytest.raises(ValueError, match="invalid position in a dataset"):
        other.load_state({"epoch": 1})


def test_a_loop_that_is_left_is_an_epoch() -> None:
    iterator = dataset([100]).iterator()
    for _ in iterator.iter_batches(batch_size=10):
        break
    assert iterator.epoch == 1
    assert sum(len(batch["x"]) for batch in iterator.iter_batches(batch_size=10)) == 100
    assert iterator.epoch == 2


def test_batches_can_be_modified() -> None:
    kept = list(dataset([64]).iter_batches(batch_size=16))
    kept[0]["x"][:] = -1  # writable and not shared
    assert [batch["x"].tolist() for batch in kept[1:]] == [list(range(16 * i, 16 * i + 16)) for i in (1, 2, 3)]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, "batch_size = 0: must be at least 1"),
        ({"batch_size": 1.5}, TypeError, "batch_size: expected int, got float"),
        ({"prefetch_batches": -1}, ValueError, "prefetch_batches = -1"),
        ({"batchsize": 8}, TypeError, "has no field 'batchsize'; did you mean 'batch_size'?"),
        ({"batch_format": "list"}, ValueError, "batch_format='list'"),
        ({"local_shuffle_buffer_size": 0}, ValueError, "local_shuffle_buffer_size = 0"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dataset([10]).iter_batches(**options)


def test_a_dataset_without_rows() -> None:
    assert list(dataset([10]).filter(lambda row: False).iter_batches()) == []


def test_streaming_split_is_even_and_repeatable() -> None:
    parts = dataset([100, 7]).streaming_split(3)
    epochs = [
        [[x for batch in part.iter_batches(batch_size=8) for x in batch["x"].tolist()] for part in parts] for _ in "ab"
    ]
    for epoch in epochs:
        assert sorted(x for rows in epoch for x in rows) == list(range(107))
        assert sorted(map(len, epoch)) == [35, 36, 36]
    equal = dataset([100, 7]).streaming_split(3, equal=True)
    assert [sum(len(batch["x"]) for batch in part.iter_batches()) for part in equal] == [35, 35, 35]


MEMORY = """
import numpy as np, pyarrow as pa, resource, sys
import trireme.data
from trireme.data._iterator import DataIterator, Part

budget = 64 << 20
folder = sys.argv[1]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

planned = trireme.data.read_parquet(folder).random_shuffle(seed=1, window_rows=20_000).plan()
assert sum(size for _, size, _ in planned.fragments) > 10 * budget * 0.95
def run(most):
    iterator = DataIterator(planned, Part(memory_budget=budget, seed=1))
    peak = 0
    for step, batch in enumerate(iterator.iter_batches(batch_size=512)):
        peak = max(peak, resident())
        if step == most:
            break
    return peak
run(1)  # what is loaded once is not growth
before = resident()
peak = run(10**9)
print((peak - before) / budget)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "rows", "group", "files"),
    [
        pytest.param(150, 110_000, 10_000, 10, id="small row groups, decoded at once"),
        pytest.param(10, 650_000, 650_000, 26, id="large ones, page by page"),
    ],
)
def test_memory_stays_below_the_budget(tmp_path: Any, columns: int, rows: int, group: int, files: int) -> None:
    numbers = np.random.default_rng(0)
    table = pa.table({f"c{i}": numbers.random(rows, dtype="float32") for i in range(columns)})
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=group, compression="none")
    for part in range(1, files):
        os.link(tmp_path / "0.parquet", tmp_path / f"{part}.parquet")
    script = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(
        script, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.0, done.stdout


def raw_pass(opened: Any) -> Any:
    """A pass of the core over 1,000 rows; opened() is called in the thread that reads them."""
    table = pa.table({"x": range(500)})  # in each of two fragments

    def open_fragment(fragment: int, row: int) -> tuple[Any, int]:
        opened()
        return table.slice(row), row

    shard = _core.DataShard.make([(500, 4000, "a"), (500, 4000, "b")], open_fragment, {}, {})
    return shard.iterate({"batch_size": 10})


def test_a_pass_is_closed_while_other_threads_are_in_it() -> None:
    for _ in range(20):
        reading, go_on = threading.Event(), threading.Event()

        def opened(reading: threading.Event = reading, go_on: threading.Event = go_on) -> None:
            reading.set()
            go_on.wait(60)

        running, said = raw_pass(opened), []

        def take(running: Any = running, said: list[str] = said) -> None:
            try:
                while running.next(0.01) is not None:
                    pass
            except ValueError as error:
                said.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(4)]
        threads += [threading.Thread(target=running.close) for _ in range(2)]
        assert reading.wait(60)
        for thread in threads:
            thread.start()
        go_on.set()  # otherwise close() would wait for the reader
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert said == ["this pass over the data is closed"] * 4
        assert (running.epoch, running.steps) == (0, 100)
        with pytest.raises(ValueError, match="is closed"):
            running.next(0)
        running.close()


def test_a_pass_whose_last_reference_goes_in_its_own_thread() -> None:
    """A garbage collection can run whenever Python code runs, also in a reader thread."""
    reading, dropped, collected = threading.Event(), threading.Event(), threading.Event()

    class Cycle:
        def __init__(self) -> None:
            self.itself = self
            self.running: Any = None

    def opened() -> None:
        if reading.is_set():
            return
        reading.set()
        assert dropped.wait(60)
        gc.collect()
        collected.set()

    gc.disable()  # collections run only when the test requests them
    try:
        cycle = Cycle()
        cycle.running = raw_pass(opened)
        gone = weakref.ref(cycle)
        assert reading.wait(60)
        del cycle
        dropped.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    assert gone() is None
