"""mix(), streaming_train_test_split(), summary(), explain(), and settings that reach workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trireme
import trireme.data
from trireme import DataParallelTrainer, RunConfig, ScalingConfig
from trireme.data import DataContext, ExecutionOptions, ExecutionResources, MixStoppingCondition
from trireme.data.aggregate import Max, Mean


def _by_time(counts: list[int], weights: list[float]) -> list[tuple[int, int]]:
    """An independent reference: at each step, the dataset whose next row is due first."""
    taken = [0] * len(counts)
    order = []
    while sum(taken) < sum(counts):
        due = [(taken[k] + 0.5) / weights[k] if taken[k] < counts[k] else math.inf for k in range(len(counts))]
        k = due.index(min(due))
        order.append((k, taken[k]))
        taken[k] += 1
    return order


def _mixed(counts: list[int], weights: list[float], **options: Any) -> list[tuple[int, int]]:
    sets = [trireme.data.range(n).with_column("k", f"id * 0 + {k}") for k, n in enumerate(counts)]
    mixed = sets[0].mix(*sets[1:], weights=weights, **options)
    return [(row["k"], row["id"]) for row in mixed.take_all()]


@pytest.mark.parametrize("seed", range(5))
def test_mix_interleaves_by_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = [int(n) for n in rng.integers(1, 400, size=rng.integers(2, 5))]
    # Powers of two: no two times differ only by rounding.
    weights = [2.0 ** -int(e) for e in rng.integers(0, 4, size=len(counts))]
    assert _mixed(counts, weights) == _by_time(counts, weights)


def test_mix_stops_on_the_shortest() -> None:
    rows = _mixed([30, 1000], [0.75, 0.25], stopping_condition=MixStoppingCondition.STOP_ON_SHORTEST)
    assert rows == [row for row in _by_time([30, 1000], [0.75, 0.25])][:40]
    assert sum(k == 0 for k, _ in rows) == 30


def test_mix_keeps_the_ratio_in_every_part() -> None:
    big = trireme.data.range(60_000).with_column("k", "id * 0")
    small = trireme.data.range(20_000).with_column("k", "id * 0 + 1")
    mixed = big.mix(small, weights=[3, 1])
    assert mixed.num_blocks() > 5
    assert mixed.count() == 80_000
    shuffled = mixed.random_shuffle(seed=1)
    parts = [batch["k"].mean() for batch in shuffled.iterator().iter_batches(batch_size=8000)]
    assert all(abs(part - 0.25) < 0.03 for part in parts)
    ids = mixed.select_columns(["id"]).to_pandas()["id"]
    assert sorted(ids) == sorted([*range(60_000), *range(20_000)])
    assert mixed.split_at_indices([1234])[1].take(3) == mixed.take(1237)[1234:]


def test_errors_of_mix() -> None:
    one = trireme.data.range(3)
    with pytest.raises(ValueError, match=r"mix\(weights=\[1\]\): 1 weights for 2 datasets"):
        one.mix(one, weights=[1])
    with pytest.raises(ValueError, match="a weight is 0; expected a number above 0"):
        one.mix(one, weights=[1, 0])
    with pytest.raises(TypeError, match="mix: argument 1 is a int"):
        one.mix(3)


@pytest.mark.parametrize("options", [{}, {"split_type": "hash", "hash_column": "key"}, {"seed": 9}])
def test_streaming_split_divides_the_rows(options: dict[str, Any]) -> None:
    keys = np.random.default_rng(0).integers(0, 500, 20_000)
    dataset = trireme.data.from_pandas(pd.DataFrame({"key": keys, "row": np.arange(20_000)}))
    train, test = dataset.streaming_train_test_split(0.2, **options)
    rows = [part.to_pandas() for part in (train, test)]
    assert sorted([*rows[0]["row"], *rows[1]["row"]]) == list(range(20_000))
    assert 0.15 < len(rows[1]) / 20_000 < 0.25
    again = dataset.streaming_train_test_split(0.2, **options)[1].to_pandas()
    pd.testing.assert_frame_equal(again, rows[1])
    if "hash_column" in options:
        assert not set(rows[0]["key"]) & set(rows[1]["key"])
        other = trireme.data.from_pandas(rows[1]).streaming_train_test_split(0.2, **options)[0]
        assert other.count() == 0  # a key's side does not depend on the dataset


def test_errors_of_streaming_split() -> None:
    dataset = trireme.data.range(3)
    with pytest.raises(ValueError, match="test_size=2"):
        dataset.streaming_train_test_split(2)
    with pytest.raises(ValueError, match="split_type='by'"):
        dataset.streaming_train_test_split(0.5, split_type="by")
    with pytest.raises(ValueError, match="needs hash_column"):
        dataset.streaming_train_test_split(0.5, split_type="hash")
    with pytest.raises(ValueError, match="'missing'"):
        dataset.streaming_train_test_split(0.5, split_type="hash", hash_column="missing")[0].take_all()


def test_summary() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.5, None, 4.0], "s": ["a", "b", "a", None], "t": pd.to_datetime([1, 2, 3, 4])})
    summary = trireme.data.from_pandas(frame).summary()
    x = summary.stats["x"]
    assert (x["count"], x["missing_pct"], x["min"], x["max"], x["approx_quantile"]) == (4, 25.0, 0.0, 4.0, [1.5])
    assert x["mean"] == pytest.approx(frame["x"].mean())
    assert x["std"] == pytest.approx(frame["x"].std())
    assert x["zero_pct"] == pytest.approx(100 / 3)
    assert summary.stats["s"]["approx_topk"] == [{"s": "a", "count": 2}, {"s": "b", "count": 1}]
    assert summary.stats["t"]["max"] == frame["t"].max()
    shown = summary.to_pandas().set_index("statistic")
    assert shown.loc["max", "x"] == 4.0
    assert shown.loc["mean", "s"] is None
    assert summary.get_column_stats("s").set_index("statistic").loc["count", "value"] == 4
    mapping = {pa.float64(): lambda column: [Max(column), Mean(column)]}
    chosen = trireme.data.from_pandas(frame).summary(columns=["x"], override_dtype_agg_mapping=mapping)
    assert list(chosen.stats) == ["x"]
    assert set(chosen.stats["x"]) == {"max", "mean"}


def test_explain_shows_where_operations_run(tmp_path: Any, capsys: Any) -> None:
    trireme.data.range(10).write_parquet(str(tmp_path))
    dataset = trireme.data.read_parquet(str(tmp_path)).filter("id > 3").map(lambda row: row).random_shuffle()
    dataset.limit(3).explain()
    shown = capsys.readouterr().out
    assert "limit(3)" in shown
    dataset.explain()
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "read_parquet (1 file)"
    assert "filter((id > 3)): while files are read" in shown
    assert "in separate processes" in shown
    assert "shuffle rows" in shown


def test_references_to_blocks_name_the_alternative() -> None:
    dataset = trireme.data.range(3)
    with pytest.raises(NotImplementedError, match=r"to_pandas_refs: .* to_pandas\(\)"):
        dataset.to_pandas_refs()
    with pytest.raises(NotImplementedError, match=r"from_arrow_refs: .* from_arrow\(\)"):
        trireme.data.from_arrow_refs([])
    assert dataset.get_dataset_id() != trireme.data.range(3).get_dataset_id()
    assert dataset.get_dataset_id().startswith("dataset_")


@pytest.fixture
def context() -> Any:
    before = DataContext.get_current()
    DataContext._set_current(DataContext())
    yield DataContext.get_current()
    DataContext._set_current(before)


def test_names_that_scripts_use() -> None:
    assert trireme.data.DatasetContext is DataContext
    dataset = trireme.data.range(100)
    seeded = [dataset.random_shuffle(seed=seed).take_all() for seed in (3, trireme.data.RandomSeedConfig(3))]
    assert seeded[0] == seeded[1]
    columns = dataset.select_columns(["id"], concurrency=2).rename_columns({"id": "x"}, concurrency=2)
    assert columns.take(1) == [{"x": 0}]
    assert dataset.iterator().get_context() is DataContext.get_current()


def _train_with_settings(config: dict[str, Any]) -> Any:
    current = DataContext.get_current()
    shard = trireme.get_dataset_shard("train")
    functions = {int(value) for batch in shard.iter_batches(batch_size=4) for value in batch["setting"]}
    return current.get_config("answer"), sorted(functions), current.execution_options.resource_limits.cpu


def test_settings_reach_workers_and_functions(context: Any, tmp_path: Any) -> None:
    context.set_config("answer", 42)
    context.execution_options = ExecutionOptions(resource_limits=ExecutionResources(cpu=2, object_store_memory=1 << 28))

    def add_setting(batch: dict[str, Any]) -> dict[str, Any]:
        answer = trireme.data.DataContext.get_current().get_config("answer")
        return {"setting": np.full(len(batch["id"]), answer)}

    result = DataParallelTrainer(
        _train_with_settings,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="run", storage_path=str(tmp_path)),
        datasets={"train": trireme.data.range(20).map_batches(add_setting)},
    ).fit()
    assert result.return_value == (42, [42], 2)


def test_settings_of_a_dataset(context: Any) -> None:
    context.set_config("a", 1)
    dataset = trireme.data.range(3)
    context.set_config("a", 2)
    assert dataset.limit(2).context.get_config("a") == 1
    with DataContext.current(dataset.limit(2).context):
        assert DataContext.get_current().get_config("a") == 1
    assert DataContext.get_current().get_config("a") == 2
    context.remove_config("a")
    assert context.get_config("a", "default") == "default"
    with pytest.raises(trireme.ConfigError, match="cpu = -1"):
        ExecutionResources(cpu=-1)
    context.execution_options = ExecutionOptions(resource_limits=3)  # type: ignore[arg-type]
    with pytest.raises(trireme.ConfigError, match="resource_limits = 3"):
        context.execution_options.validate()
