"""Plans: fragments, counts, slices, push-down to files, and the form sent to workers."""

import pickle
import subprocess
import sys
import threading

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme import data
from trireme.data._dataset import Dataset
from trireme.data._fragment import DataError, Fragment, Source


class Part(Fragment):
    """Rows of a table, which records requests."""

    def __init__(self, table, name, known, step, log, rows_per_batch=4):
        self.table = table
        self.name = name
        self.rows = table.num_rows if known else None
        self.size_bytes = table.nbytes if known else None
        self.step = step
        self.log = log
        self.rows_per_batch = rows_per_batch

    def open(self, columns=None, row=0):
        self.log.append((self.name, None if columns is None else list(columns), row))
        table = self.table if columns is None else self.table.select(list(columns))
        begin = row // self.step * self.step
        return table.slice(begin).to_reader(max_chunksize=self.rows_per_batch), begin


class Parts(Source):
    name = "parts"

    def __init__(self, sizes, known=True, step=1, expression=None, pushes=False):
        self.log = []
        self.filters = []
        self._pushes = pushes
        numbers = iter(range(sum(sizes)))
        tables = []
        for size in sizes:
            values = [next(numbers) for _ in range(size)]
            columns = {"x": pa.array(values, pa.int64()), "y": [str(v) for v in values], "z": [v / 2 for v in values]}
            tables.append(
                pa.table(columns, schema=pa.schema([("x", pa.int64()), ("y", pa.string()), ("z", pa.float64())]))
            )
        self._parts = [Part(table, f"part {i}", known, step, self.log) for i, table in enumerate(tables)]

    def fragments(self):
        return list(self._parts)

    def schema(self):
        return pa.schema([("x", pa.int64()), ("y", pa.string()), ("z", pa.float64())])

    def with_filter(self, expression):
        if not self._pushes:
            return None
        self.filters.append(expression)
        pushed = Parts([])
        pushed.log = self.log
        pushed._parts = [Part(p.table.filter(expression), p.name, False, 1, self.log) for p in self._parts]
        return pushed


def xs(dataset):
    return [row["x"] for row in dataset.take_all()]


def planned_xs(planned):
    return xs_of(planned, planned.reads())


def xs_of(planned, reads):
    return [x for i in range(len(planned.fragments)) for x in reads.open(i, 0)[0].read_all().column("x").to_pylist()]


def double(batch):
    return {"x": batch["x"] * 2}


def test_nothing_is_read_before_it_is_needed():
    source = Parts([3, 3])
    dataset = Dataset(source).map_batches(double).filter("x > 2").limit(2).select_columns("x")
    assert source.log == []
    assert dataset.take_all() == [{"x": 4}, {"x": 6}]


def test_counting_is_done_once_and_shared_by_what_only_changes_columns():
    source = Parts([3, 0, 5], known=False)
    dataset = Dataset(source)
    assert dataset.count() == 8
    assert sorted(name for name, _, _ in source.log) == ["part 0", "part 1", "part 2"]
    # Counting reads only the narrowest column.
    assert {tuple(columns) for _, columns, _ in source.log} == {("x",)}
    source.log.clear()
    assert dataset.count() == 8
    assert dataset.rename_columns({"x": "a"}).drop_columns(["y"]).count() == 8
    assert source.log == []
    assert dataset.filter("x > 3").count() == 4
    assert len(source.log) == 3


def test_limit_counts_no_further_than_it_must():
    source = Parts([10] * 20, known=False)
    assert xs(Dataset(source).limit(12)) == list(range(12))
    assert {name for name, _, _ in source.log} == {"part 0", "part 1"}
    source.log.clear()
    assert [row["x"] for row in Dataset(source).filter(lambda row: row["x"] % 2 == 1).take(3)] == [1, 3, 5]
    assert {name for name, _, _ in source.log} == {"part 0"}


def test_unused_columns_are_not_read():
    source = Parts([4, 4])
    assert Dataset(source).select_columns(["z", "x"]).take(1) == [{"z": 0.0, "x": 0}]
    assert Dataset(source).drop_columns(["y"]).limit(2).columns() == ["x", "z"]
    _, rest = Dataset(source).split_at_indices([3])
    assert rest.select_columns("x").map_batches(double).take(2) == [{"x": 6}, {"x": 8}]
    assert Dataset(source).sum("x") == 28
    plan = Dataset(source).select_columns(["x"]).plan()
    assert planned_xs(plan) == list(range(8))
    assert source.log
    assert all(columns is not None and "y" not in columns for _, columns, _ in source.log)


def test_filters_reach_the_source_before_anything_else():
    source = Parts([4, 4], pushes=True)
    dataset = Dataset(source).filter("x > 2").filter(expr=data.col("x") < 6).select_columns(["x"])
    assert xs(dataset) == [3, 4, 5]
    assert len(source.filters) == 1  # a source with a filter does not accept another
    assert dataset.plan().rows == dataset.count() == 3
    source = Parts([4, 4], pushes=True)
    late = Dataset(source).drop_columns("y").select_columns(["x"]).filter("x > 5")
    assert late.take_all() == [{"x": 6}, {"x": 7}]
    assert len(source.filters) == 1
    assert all(columns == ["x"] for _, columns, _ in source.log)
    with pytest.raises(ValueError, match=r"q.*columns are x: int64"):
        Dataset(source).filter("q > 2").count()


def test_functions_are_tried_once_for_the_schema():
    calls = []

    def seen(batch):
        calls.append(len(batch["x"]))
        return {"a": batch["x"] / 2, "b": [str(x) for x in batch["x"]]}

    dataset = Dataset(Parts([5, 5])).map_batches(seen)
    assert calls == []
    assert dataset.schema() == pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert dataset.columns() == ["a", "b"]
    assert dataset.plan().schema == dataset.schema()
    assert calls == [4]
    # The ops keep rows: the row counts of the source are valid, and slices are pushed down to it.
    assert dataset.count() == 10
    assert calls == [4]


def test_previews_do_not_measure_functions():
    calls = []

    def seen(batch):
        calls.append(batch["x"].tolist())
        return batch

    dataset = Dataset(Parts([5, 5])).map_batches(seen)
    assert [row["x"] for row in dataset.take(3)] == [0, 1, 2]
    assert calls == [[0, 1, 2, 3]]
    calls.clear()
    assert xs(dataset.filter("x > 1").drop_columns("y")) == list(range(2, 10))
    assert calls == [[0, 1, 2, 3], [4], [5, 6, 7, 8], [9]]


def test_whether_a_function_keeps_rows_is_found_out():
    def odd(batch):
        return {"x": batch["x"][batch["x"] % 2 == 1]}

    for more in ({}, {"udf_modifying_row_count": True}):
        dataset = Dataset(Parts([5, 5])).map_batches(odd, **more)
        assert dataset.count() == 5
        assert xs(dataset.limit(3)) == [1, 3, 5]
        assert planned_xs(dataset.plan()) == [1, 3, 5, 7, 9]
        assert [rows for rows, _, _ in dataset.plan().fragments] == [2, 3]

    def later(batch):
        return {"x": batch["x"][:3]} if batch["x"][0] > 3 else batch

    planned = Dataset(Parts([4, 4])).map_batches(later).plan()
    reads = planned.reads()
    with pytest.raises(Exception, match="udf_modifying_row_count=True"):
        xs_of(planned, reads)
    assert isinstance(reads.take_error(), DataError)
    assert reads.take_error() is None


def test_slow_functions_are_tried_with_a_few_rows_and_quick_ones_with_more(monkeypatch):
    from trireme.data import _plan

    source = data.range(5000, override_num_blocks=1)
    seen = []

    def function(batch):
        seen.append(len(batch["id"]))
        return {"x": batch["id"].astype("float32")}

    mapped = source.map_batches(function)
    assert mapped.schema().field("x").type == pa.float32()
    assert sum(seen) == 1024 and seen[0] == 32
    assert sum(size for _, size, _ in mapped.plan().fragments) == 5000 * 4
    assert sum(size for _, size, _ in mapped.limit(1000).rename_columns({"x": "y"}).plan().fragments) == 1000 * 4
    assert sum(seen) == 1024
    seen.clear()
    monkeypatch.setattr(_plan, "_QUICK_SECONDS", -1)
    assert source.map_batches(function).count() == 5000
    assert seen == [32]


def test_sizes_follow_the_columns():
    table = pa.table({"a": np.zeros(1000, "f4"), "b": np.zeros(1000, "f8"), "c": np.zeros(1000, "i4")})
    dataset = data.from_arrow(table, override_num_blocks=3)
    size = {
        "all": dataset,
        "a": dataset.select_columns("a"),
        "ac": dataset.drop_columns("b"),
        "half": dataset.select_columns(["a"]).limit(500),
        "aa": dataset.select_columns("a").with_column("d", "a"),
    }
    found = {name: one.size_bytes() for name, one in size.items()}
    assert found == pytest.approx({"all": 16_000, "a": 4_000, "ac": 8_000, "half": 2_000, "aa": 8_000}, abs=10)
    assert dataset.filter("a > 1").size_bytes() == 0


def test_waiting_for_row_counts_logs_a_message(monkeypatch, capsys):
    from trireme.data import _plan

    monkeypatch.setattr(_plan, "_QUIET_SECONDS", -1.0)
    assert Dataset(Parts([3, 3], known=False)).count() == 6
    assert capsys.readouterr().err == "trireme.data: counting the rows of parts (2 of 2 parts)\n"
    assert Dataset(Parts([3, 3])).count() == 6
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(data.DataContext.get_current(), "enable_progress_bars", False)
    assert Dataset(Parts([3, 3], known=False)).count() == 6
    assert capsys.readouterr().err == ""
    monkeypatch.undo()
    assert Dataset(Parts([3, 3], known=False)).count() == 6
    assert capsys.readouterr().err == ""  # fast


def test_counting_stops_at_the_first_file_that_cannot_be_read():
    class Broken(Fragment):
        name, rows, size_bytes = "broken", None, None

        def open(self, columns=None, row=0):
            raise DataError("broken.csv: row 3 has 2 columns")

    source = Parts([3, 3], known=False)
    source._parts[0] = Broken()
    with pytest.raises(DataError, match=r"broken.csv: row 3"):
        Dataset(source).count()


def test_a_dataset_goes_to_another_process():
    parts = Dataset(Parts([5, 5], known=False))
    for dataset in (
        parts.filter(lambda row: row["x"] > 2).limit(4),
        parts.random_shuffle(seed=1).split(2)[1],
        parts.union(parts.sort("x")).repartition(3),
        parts.zip(parts).groupby("y").map_groups(lambda group: {"x": group["x"][:1]}),
    ):
        assert pickle.loads(cloudpickle.dumps(dataset)).take_all() == dataset.take_all()


def test_a_plan_is_read_in_another_process():
    dataset = Dataset(Parts([5, 5])).filter(lambda row: row["x"] != 3).map_batches(double)
    planned = dataset.plan()
    copy = pickle.loads(cloudpickle.dumps(planned))
    assert copy.fragments == planned.fragments
    assert copy.fingerprint == planned.fingerprint
    assert copy.has_functions and not copy.remote
    assert planned_xs(copy) == [0, 2, 4, 8, 10, 12, 14, 16, 18]
    script = "import sys, pickle; p = pickle.load(sys.stdin.buffer); print(p.reads().open(0, 0)[0].read_all().num_rows)"
    table = data.from_arrow(pa.table({"x": np.arange(300_000)})).sort("x", descending=True).limit(200_000)
    planned = table.plan()
    sent = cloudpickle.dumps(planned)
    assert len(sent) < 100_000  # the table is shared, not copied
    out = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True)
    assert int(out.stdout) == planned.fragments[0][0]


def test_opening_at_a_row_gives_the_same_rows():
    for step in (1, 4):
        source = Parts([11], step=step)
        for dataset in (
            Dataset(source),
            Dataset(source).select_columns(["x"]),
            Dataset(source).map_batches(double, batch_size=3),
            Dataset(source).filter("x != 5"),
            Dataset(source).split_at_indices([2])[1],
            Dataset(source).limit(9).map_batches(double),
        ):
            planned = dataset.plan()
            whole = planned_xs(planned)
            assert len(whole) == planned.rows
            for row in range(planned.rows):
                reader, first = planned.reads().open(0, row)
                assert first <= row
                assert reader.read_all().column("x").to_pylist() == whole[first:]


def test_functions_see_the_same_batches_from_wherever_reading_begins():
    def shared(batch):
        return {"x": batch["x"], "with": np.full(len(batch["x"]), batch["x"][0])}

    for step in (1, 5):
        planned = Dataset(Parts([20], step=step)).map_batches(shared, batch_size=6).plan()
        whole = planned.reads().open(0, 0)[0].read_all()
        reader, first = planned.reads().open(0, 14)
        assert first == 12
        assert reader.read_all().equals(whole.slice(12))


def test_the_fingerprint_follows_the_data_and_what_is_done_to_it():
    def of(dataset):
        return dataset.plan().fingerprint

    def plus(batch):
        return {"x": batch["x"] + 1}

    prints = [
        of(Dataset(Parts([4, 4]))),
        of(Dataset(Parts([4, 5]))),
        of(Dataset(Parts([4, 4])).select_columns("x")),
        of(Dataset(Parts([4, 4])).map_batches(double)),
        of(Dataset(Parts([4, 4])).map_batches(plus)),
        of(Dataset(Parts([4, 4])).limit(7)),
        of(Dataset(Parts([4, 4])).split_at_indices([1])[1]),
        of(Dataset(Parts([4, 4])).random_sample(0.5, seed=1)),
        of(Dataset(Parts([4, 4])).random_sample(0.5, seed=5)),
    ]
    assert len(set(prints)) == len(prints)
    assert of(Dataset(Parts([4, 4]))) == prints[0]
    changed = Parts([4, 4])
    changed._parts[1].version = "changed"
    assert of(Dataset(changed)) != prints[0]


def test_a_shuffle_is_kept_until_the_order_matters():
    dataset = Dataset(Parts([4, 4])).random_shuffle(seed=3, window_rows=5).map_batches(double).filter("x < 100")
    shuffle = dataset.plan().shuffle
    assert (shuffle.seed, shuffle.rows, shuffle.window_rows) == (3, True, 5)
    assert planned_xs(dataset.plan()) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert dataset.limit(3).plan().shuffle is None
    assert xs(dataset.limit(3)) == xs(dataset)[:3]
    assert Dataset(Parts([4])).randomize_block_order(seed=1).plan().shuffle.rows is False
    assert dataset.sort("x").plan().shuffle is None


def test_the_rows_of_a_file_that_changes_are_not_given_out():
    source = Parts([4, 4])
    planned = Dataset(source).map_batches(lambda b: b).plan()
    reads = planned.reads()
    source._parts[0].table = source._parts[0].table.slice(1)
    with pytest.raises(Exception, match="part 0 has 3 rows now and had 4"):
        xs_of(planned, reads)
    assert isinstance(reads.take_error(), DataError)


def test_batches_of_another_type_are_named():
    def mixed(row):
        return {"x": row["x"] if row["x"] < 4 else "four"}

    dataset = Dataset(Parts([4, 4])).map(mixed)
    with pytest.raises(DataError, match=r"'x'.*string.*int64"):
        dataset.take_all()
    planned = dataset.plan()
    with pytest.raises(Exception, match=r"part 1.*'x'"):
        planned_xs(planned)


def test_errors_of_readers_pass_threads_unchanged():
    class Broken(Fragment):
        name, rows, size_bytes = "broken", 3, 1

        def open(self, columns=None, row=0):
            raise OSError("the disk is gone")

    source = Parts([4, 4, 4, 4])
    source._parts[2] = Broken()
    before = threading.active_count()
    with pytest.raises(OSError, match="the disk is gone"):
        Dataset(source).take_all()
    assert threading.active_count() == before
    batches = Dataset(source)._stream()
    assert next(batches).num_rows == 4
    batches.close()
    assert threading.active_count() == before


def test_the_stream_is_bounded():
    """A reader without a consumer stops after a few batches."""
    read = []

    class Endless(Fragment):
        name, rows, size_bytes = "endless", None, None

        def open(self, columns=None, row=0):
            def batches():
                while True:
                    read.append(1)
                    yield pa.record_batch({"x": [len(read)]})

            return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches()), 0

    source = Parts([])
    source._parts = [Endless()]
    source.schema = lambda: pa.schema([("x", pa.int64())])
    assert [row["x"] for row in Dataset(source).take(3)] == [1, 2, 3]
    stream = Dataset(source)._stream()
    for _ in range(5):
        next(stream)
    stream.close()
    assert len(read) < 20
    assert xs(Dataset(source).limit(4)) != []


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, known=st.booleans(), step=st.sampled_from([1, 3]), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_pieces_of_pieces_are_the_rows_of_a_list(sizes, known, step, cuts):
    """Cuts a dataset at random, with ops between the cuts, and a list in the same way."""
    dataset, expected = Dataset(Parts(sizes, known, step)).select_columns("x"), list(range(sum(sizes)))
    for number, cut in enumerate(cuts):
        if number % 3 == 0:
            dataset, expected = dataset.split_at_indices([cut])[1], expected[cut:]
        elif number % 3 == 1:
            dataset, expected = dataset.limit(cut), expected[:cut]
        else:
            dataset, expected = dataset.filter(f"x % 7 != {cut % 7}"), [x for x in expected if x % 7 != cut % 7]
        if number % 2:
            dataset = dataset.map_batches(lambda batch: {"x": batch["x"]})
    assert xs(dataset) == expected
    planned = dataset.plan()
    assert planned_xs(planned) == expected
    assert planned.rows == dataset.count() == len(expected)
    assert all(rows > 0 for rows, _, _ in planned.fragments)


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, known=st.booleans(), blocks=st.integers(1, 8), rows=st.integers(1, 8))
def test_repartition_keeps_rows_and_order(sizes, known, blocks, rows):
    total = sum(sizes)
    dataset = Dataset(Parts(sizes, known))
    by_number = dataset.repartition(blocks).plan()
    assert planned_xs(by_number) == list(range(total))
    assert len(by_number.fragments) == min(blocks, total)
    assert all(abs(count - total / blocks) < 1 for count, _, _ in by_number.fragments)
    by_rows = dataset.repartition(target_num_rows_per_block=rows).plan()
    assert planned_xs(by_rows) == list(range(total))
    assert all(count == rows for count, _, _ in by_rows.fragments[:-1])
    for index, (count, _, _) in enumerate(by_rows.fragments):
        for row in range(count):
            reader, first = by_rows.reads().open(index, row)
            assert (
                reader.read_all().column("x").to_pylist() == list(range(total))[index * rows + first :][: count - first]
            )
