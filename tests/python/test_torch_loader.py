from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trireme
from trireme import Checkpoint, FailureConfig, Result, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, enable_reproducibility, prepare_data_loader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset  # noqa: E402


def fit(function: Any, workers: int = 2, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


def numbers(count: int) -> Any:
    return torch.arange(count)


def gathered(value: Any) -> list[Any]:
    """The batches of all ranks."""
    import torch.distributed as dist

    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def epoch_of(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def each_worker(make: Callable[[], Any], epochs: int = 2, workers: int = 2) -> list[list[list[list[int]]]]:
    """[rank][epoch][step] -> the batch's numbers."""

    def train() -> Any:
        loader = prepare_data_loader(make())
        return gathered([epoch_of(loader) for _ in range(epochs)])

    seen: list[list[list[list[int]]]] = fit(train, workers).return_value
    return seen


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def test_each_worker_has_its_part_in_a_new_order_every_epoch() -> None:
    seen = each_worker(lambda: DataLoader(numbers(21), batch_size=3, shuffle=True))
    for epoch in range(2):
        parts = [flat(seen[rank][epoch]) for rank in range(2)]
        assert set(parts[0]) | set(parts[1]) == set(range(21))
        assert [len(part) for part in parts] == [11, 11]  # one sample appears twice
    assert seen[0][0] != seen[0][1]
    # The same with torch's own classes:
    sampler = DistributedSampler(range(21), num_replicas=2, rank=1, seed=0)
    sampler.set_epoch(1)
    assert flat(seen[1][1]) == list(sampler)


def test_without_shuffle_and_with_drop_last() -> None:
    assert each_worker(lambda: DataLoader(numbers(11), batch_size=2, drop_last=True), epochs=1) == [
        [[[0, 2], [4, 6]]],
        [[[1, 3], [5, 7]]],
    ]


def test_fewer_samples_than_workers() -> None:
    assert each_worker(lambda: DataLoader(numbers(1), batch_size=1), epochs=1, workers=3) == [[[[0]]]] * 3


class Weighted:
    """A user-defined sampler with Python's random numbers."""

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        import random

        return iter(random.choices(range(100), k=8))


def test_samplers_of_the_users_are_split() -> None:
    def train() -> Any:
        import random

        random.seed(trireme.get_context().get_world_rank())  # the ranks must agree nevertheless
        weighted = torch.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0, 1.0], num_samples=6)
        ours = prepare_data_loader(DataLoader(numbers(4), sampler=weighted))
        own = prepare_data_loader(DataLoader(numbers(100), batch_size=2, sampler=Weighted()))
        drawn = random.getstate()
        found = [epoch_of(ours), epoch_of(own), epoch_of(own)]
        assert random.getstate() == drawn
        return gathered(found), len(own)

    ranks, length = fit(train).return_value
    assert length == 2
    assert all(set(flat(rank[0])) <= {1, 3} and len(rank[0]) == 3 for rank in ranks)
    for epoch in (1, 2):
        import random

        random.seed(epoch - 1)
        together = [number for pair in zip(*(flat(rank[epoch]) for rank in ranks), strict=True) for number in pair]
        assert together == random.choices(range(100), k=8)


def test_samplers_of_batches_are_split_batch_by_batch() -> None:
    def make() -> Any:
        inner = torch.utils.data.RandomSampler(range(10), generator=torch.Generator().manual_seed(7))
        return DataLoader(numbers(10), batch_sampler=BatchSampler(inner, 2, drop_last=False))

    seen = each_worker(make)
    for epoch in range(2):
        assert len(seen[0][epoch]) == len(seen[1][epoch]) == 3  # of 5: the first sample twice
        assert set(flat(seen[0][epoch]) + flat(seen[1][epoch])) == set(range(10))
    assert seen[0][0] != seen[0][1]
    assert seen[0][0][0] == seen[1][0][2]


def test_a_sampler_without_length() -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    seen = each_worker(lambda: DataLoader(numbers(7), batch_size=2, sampler=Endless()), epochs=1)
    assert seen == [[[[0, 2], [4]]], [[[1, 3], [5]]]]


def test_a_distributed_sampler_is_kept_and_gets_the_epoch() -> None:
    def train() -> Any:
        mirrored = DistributedSampler(range(8), num_replicas=2, rank=1, seed=3)  # intentionally the same on both ranks
        loader = prepare_data_loader(DataLoader(numbers(8), batch_size=2, sampler=mirrored))
        return gathered([epoch_of(loader), epoch_of(loader)])

    ranks = fit(train).return_value
    assert ranks[0] == ranks[1]
    for epoch in range(2):
        expected = DistributedSampler(range(8), num_replicas=2, rank=1, seed=3)
        expected.set_epoch(epoch)
        assert flat(ranks[0][epoch]) == list(expected)


def test_all_data_on_every_worker() -> None:
    def train() -> Any:
        loader = prepare_data_loader(DataLoader(numbers(5), batch_size=2), add_dist_sampler=False)
        return gathered(epoch_of(loader))

    assert fit(train).return_value == [[[0, 1], [2, 3], [4]]] * 2


class Stream(IterableDataset):  # type: ignore[type-arg]
    """One more on every rank."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rank = trireme.get_context().get_world_rank()
        return iter(range(100 * self.epoch, 100 * self.epoch + 6 + 3 * rank))


def test_streams_end_on_all_ranks_at_the_same_step() -> None:
    def train() -> Any:
        loader = prepare_data_loader(DataLoader(Stream(), batch_size=2))
        left = [batch.tolist() for batch, _ in zip(loader, range(2), strict=False)]
        again = prepare_data_loader(DataLoader(Stream(), batch_size=2))
        again.load_state_dict(loader.state_dict())
        whole = prepare_data_loader(DataLoader(Stream(), batch_size=2), add_dist_sampler=False)
        return gathered((left, epoch_of(loader), epoch_of(again), len(epoch_of(whole))))

    first, second = fit(train).return_value
    # zip() has taken a third batch before it saw that the range had ended.
    assert first == ([[0, 1], [2, 3]], [[100, 101], [102, 103], [104, 105]], [], 3)
    assert second == ([[0, 1], [2, 3]], [[100, 101], [102, 103], [104, 105]], [], 5)


def collated(items: list[Any]) -> dict[str, Any]:
    return {"items": torch.stack(items), "worker": torch.utils.data.get_worker_info().seed}


def started(worker: int) -> None:
    torch.utils.data.get_worker_info().dataset.started = worker


class Counting(torch.utils.data.Dataset):  # type: ignore[type-arg]
    started = -1

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, self.started])


class TheirLoader(DataLoader):  # type: ignore[type-arg]
    extra = "kept"


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_every_option_of_the_loader_is_kept(context: str) -> None:
    def train() -> Any:
        multiprocessing.set_forkserver_preload([__name__])  # imports torch, once for both processes of the loader
        options = {
            "batch_size": 2,
            "num_workers": 2,
            "collate_fn": collated,
            "drop_last": True,
            "timeout": 50,
            "worker_init_fn": started,
            "multiprocessing_context": context,
            "generator": torch.Generator().manual_seed(5),
            "prefetch_factor": 3,
            "persistent_workers": True,
        }
        theirs = TheirLoader(Counting(), shuffle=True, **options)
        loader = prepare_data_loader(theirs)
        assert isinstance(loader, TheirLoader)
        for name in [*options, "dataset", "pin_memory", "in_order", "extra"]:
            assert getattr(loader, name) is getattr(theirs, name), name
        epochs = [list(loader) for _ in range(2)]
        assert len(loader) == len(epochs[0]) == 3
        assert {int(row[1]) for batch in epochs[0] for row in batch["items"]} == {0, 1}  # worker_init_fn has run
        seeds = [{batch["worker"] for batch in batches} for batches in epochs]
        assert seeds[0] == seeds[1]  # persistent: the same processes
        return gathered([[int(row[0]) for batch in batches for row in batch["items"]] for batches in epochs])

    ranks = fit(train).return_value
    for epoch in range(2):
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == list(range(12))
    assert ranks[0][0] == torch.randperm(12, generator=torch.Generator().manual_seed(5))[::2].tolist()


def test_seed_of_enable_reproducibility() -> None:
    def train() -> Any:
        enable_reproducibility(11)
        return flat(epoch_of(prepare_data_loader(DataLoader(numbers(10), shuffle=True))))

    expected = torch.randperm(10, generator=torch.Generator().manual_seed(11)).tolist()
    assert fit(train, 0).return_value == expected


def test_no_automatic_batches() -> None:
    def train() -> Any:
        loader = prepare_data_loader(DataLoader(numbers(4), batch_size=None))
        return gathered([item.item() for item in loader])

    assert fit(train).return_value == [[0, 2], [1, 3]]


def test_structures_are_moved() -> None:
    from collections import defaultdict, namedtuple

    from trireme.torch._transfer import move

    pair = namedtuple("pair", "x y")
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    made = defaultdict(list, a=torch.ones(1))
    batch = {"list": [torch.ones(1), "text"], "pair": pair(torch.ones(1), 3), "packed": packed, "made": made}
    moved = move(batch, torch.device("meta"))
    assert moved["list"][0].is_meta and moved["list"][1] == "text"
    assert isinstance(moved["pair"], pair) and moved["pair"].x.is_meta and moved["pair"].y == 3
    assert moved["packed"].data.is_meta
    assert moved["made"]["a"].is_meta


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resuming_in_the_middle_of_an_epoch(num_workers: int) -> None:
    def train() -> Any:
        def make() -> Any:
            return prepare_data_loader(DataLoader(numbers(23), batch_size=3, shuffle=True, num_workers=num_workers))

        whole = make()
        expected = [epoch_of(whole) for _ in range(3)]
        loader = make()
        list(loader)
        for step, _ in enumerate(loader):
            if step == 1:
                break
        state = loader.state_dict()
        assert state == {"epoch": 1, "samples": 12, "seed": 0, "size": 23}
        resumed = make()
        resumed.load_state_dict(state)
        assert (resumed.epoch, resumed.state_dict()) == (1, state)
        assert epoch_of(resumed) == expected[1][2:]
        assert resumed.state_dict() == {"epoch": 2, "samples": 0, "seed": 0, "size": 23}
        assert epoch_of(resumed) == expected[2]
        # The abandoned epoch is followed by the next one.
        assert epoch_of(loader) == expected[2]
        # After the last batch but before the end: the epoch has no samples left, and the next one follows.
        for _ in loader:
            last = loader.state_dict()
        resumed.load_state_dict(last)
        assert epoch_of(resumed) == []
        assert resumed.epoch == 4

    assert fit(train).error is None


def test_going_on_with_another_number_of_workers(results: Any) -> None:
    def train(config: dict[str, Any]) -> Any:
        loader = prepare_data_loader(DataLoader(numbers(30), batch_size=2, shuffle=True))
        seen = []
        for step, batch in enumerate(loader):
            seen += batch.tolist()
            if config["stop"] == step:
                trireme.report({}, checkpoint=Checkpoint.from_dict({}))
                break
        return gathered(seen)

    config = RunConfig(name="resized", storage_path=results)
    first = fit(train, 2, train_loop_config={"stop": 2}, run_config=config).return_value
    then = fit(train, 3, train_loop_config={"stop": -1}, run_config=config).return_value
    assert [len(part) for part in first] == [6, 6]
    assert [len(part) for part in then] == [6, 6, 6]
    assert sorted(flat(first) + flat(then)) == list(range(30))


def test_after_a_failure_no_batch_is_missing_or_repeated(results: Any) -> None:
    """The position is stored with the checkpoint automatically."""

    def train() -> Any:
        import os
        import signal

        import torch.distributed as dist

        loader = prepare_data_loader(DataLoader(numbers(40), batch_size=2, shuffle=True))
        valid = prepare_data_loader(DataLoader(numbers(6), batch_size=3), add_dist_sampler=False)
        began = loader.state_dict(), valid.state_dict()
        rank, attempt = dist.get_rank(), trireme.get_context()._attempt
        checkpoint = trireme.get_checkpoint()
        seen: list[int] = checkpoint.to_dict()["seen"] if checkpoint else []
        for _ in range(loader.epoch, 2):
            for step, batch in enumerate(loader):
                seen += batch.tolist()
                if len(seen) % 6 == 0:  # not every batch
                    trireme.report({}, checkpoint=Checkpoint.from_dict({"seen": seen}))
                if attempt == 0 and loader.epoch == 1 and step == 7:
                    dist.barrier()
                    if rank == 1:
                        os.kill(os.getpid(), signal.SIGKILL)
            list(valid)
        return gathered((seen, began))

    config = RunConfig(storage_path=results, failure_config=FailureConfig(max_failures=1))
    ranks = fit(train, run_config=config).return_value
    for rank, (seen, (began, valid)) in enumerate(ranks):
        orders = [torch.randperm(40, generator=torch.Generator().manual_seed(epoch)) for epoch in range(2)]
        assert seen == torch.cat([order[rank::2] for order in orders]).tolist()
        assert began["epoch"] == 1 and 0 < began["samples"] < 40
        assert (valid["epoch"], valid["samples"]) == (1, 0)


def positions() -> Any:
    from trireme._session import current_session

    return current_session("test").positions


def places() -> list[tuple[int, int]]:
    """Epoch and samples of all loaders, as a checkpoint would store them now."""
    return [(place["epoch"], place["samples"]) for place in positions().now().values()]


def test_the_position_that_a_checkpoint_stores() -> None:
    def train() -> None:
        loader = prepare_data_loader(DataLoader(numbers(7), batch_size=2))
        assert positions().now() == {"loader/0": {"epoch": 0, "samples": 0, "seed": 0, "size": 7}}
        seen = []
        for _ in loader:
            seen += places()
        # After the last batch the epoch has no samples left.
        assert seen == [(0, 2), (0, 4), (0, 6), (1, 0)]
        assert places() == [(1, 0)]
        for _ in loader:
            break
        assert places() == [(2, 0)]  # abandoned
        for _ in zip(loader, range(1), strict=False):
            assert places() == [(2, 2)]
        assert places() == [(3, 0)]
        kept = iter(loader)
        next(kept)
        assert places() == [(3, 2)]  # may continue
        del kept
        assert places() == [(4, 0)]
        loader.load_state_dict({"epoch": 9, "samples": 2, "seed": 0, "size": 7})
        assert places() == [(9, 2)]
        dropping = prepare_data_loader(DataLoader(numbers(7), batch_size=2, drop_last=True))
        assert [places()[1] for _ in dropping] == [(0, 2), (0, 4), (1, 0)]
        assert positions().now().keys() == {"loader/0", "loader/1"}
        del loader, _
        assert positions().now().keys() == {"loader/1"}
        batches = DataLoader(numbers(6), batch_sampler=BatchSampler(range(6), 2, drop_last=False))
        own = prepare_data_loader(batches)
        assert [positions().now()["loader/2"]["batches"] for _ in own] == [1, 2, 0]
        seeded = prepare_data_loader(
            DataLoader(numbers(4), shuffle=True, generator=torch.Generator().manual_seed(2**64 - 9))
        )
        order = epoch_of(seeded)
        place = positions().now()["loader/3"]
        assert place["seed"] == -9
        seeded._go_on_from(place | {"epoch": 0})
        assert epoch_of(seeded) == order

    assert fit(train, 0).error is None


def test_a_loader_resumes_from_the_position_of_the_checkpoint() -> None:
    def train() -> None:
        from trireme._positions import Positions
        from trireme._session import current_session

        session: Any = current_session("test")
        place = {"epoch": 2, "samples": 4, "seed": 5, "size": 10}

        def make(size: int = 10, **options: Any) -> Any:
            return prepare_data_loader(DataLoader(numbers(size), batch_size=2, shuffle=True), **options)

        order = torch.randperm(10, generator=torch.Generator().manual_seed(5 + 2)).tolist()
        session.positions = Positions({"loader/0": place, "loader/1": place | {"samples": 8}})
        first, second, third = make(), make(), make()
        assert flat(epoch_of(first)) == order[4:]
        assert flat(epoch_of(second)) == order[8:]
        assert third.state_dict()["samples"] == third.epoch == 0
        session.positions = Positions({"loader/0": place})
        assert make(resume=False).epoch == 0
        session.positions = Positions({"loader/0": place})
        with pytest.raises(
            ValueError,
            match=r"in the middle of an epoch over 10 samples, and this loader has 12 samples; .*resume=False",
        ):
            make(12)
        session.positions = Positions({"loader/0": {"epoch": 2, "steps": 3}})
        with pytest.raises(
            ValueError, match="an epoch over an unknown number of steps, and this loader has 10 samples"
        ):
            make()
        # The data may change between epochs.
        session.positions = Positions({"loader/0": place | {"samples": 0}})
        other = make(12)
        assert (other.epoch, len(flat(epoch_of(other)))) == (2, 12)
        # One loader per epoch: none of the later ones is that of the checkpoint.
        session.positions = Positions({"loader/1": place})
        assert len(epoch_of(make())) == 5
        with pytest.warns(UserWarning, match="has a position of loader/1, but a loader was iterated before"):
            later = make()
        assert len(epoch_of(later)) == 5
        del later
        for _ in range(100):
            make()
        assert session.positions.now() == {} and session.positions._sources == {}

    assert fit(train, 0).error is None


def test_ranks_with_different_data_are_named() -> None:
    def train(config: dict[str, Any]) -> Any:
        rank = trireme.get_context().get_world_rank()
        odd = rank == 1
        prepare_data_loader(DataLoader(numbers(8 + rank), batch_size=2), add_dist_sampler=False)  # its own business
        make: dict[str, Callable[[], Any]] = {
            "size": lambda: DataLoader(numbers(9 if odd else 8), batch_size=2),
            "batch": lambda: DataLoader(numbers(8), batch_size=4 if odd else 2),
            "seed": lambda: DataLoader(
                numbers(8), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(rank)
            ),
        }
        import torch.distributed as dist

        said = []
        for kind in config["kinds"]:
            try:
                prepare_data_loader(make[kind]())
                said.append("")
            except ValueError as error:
                said.append(str(error))
            dist.barrier()
        if not odd:
            prepare_data_loader(DataLoader(numbers(3)))  # does not wait for other ranks
        return gathered(said)

    ranks = fit(train, train_loop_config={"kinds": ["size", "batch", "seed"]}).return_value
    # The second rank detects the difference.
    sizes, batches, seeds = [mine or its for mine, its in zip(*ranks, strict=True)]
    assert "rank 0 has 8 samples in batches of 2, seed 0" in sizes
    assert "rank 1 has 9 samples in batches of 2, seed 0" in sizes
    assert "rank 1 has 8 samples in batches of 4" in batches
    assert "seed 1" in seeds and "seed 0" in seeds


def test_resuming_does_not_read_what_was_seen() -> None:
    class Touchy(torch.utils.data.Dataset):  # type: ignore[type-arg]
        touched = 0

        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> int:
            self.touched += 1
            return index

    def train() -> Any:
        dataset = Touchy()
        loader = prepare_data_loader(DataLoader(dataset, batch_size=10, shuffle=True))
        loader.load_state_dict({"epoch": 3, "samples": 900_000, "seed": 0, "size": 1_000_000})
        batch = next(iter(loader))
        order = torch.randperm(1_000_000, generator=torch.Generator().manual_seed(3))
        assert batch.tolist() == order[900_000:900_010].tolist()
        return dataset.touched

    assert fit(train, 0).return_value == 10


@pytest.mark.parametrize("workers", [0, 2])
def test_refused(workers: int) -> None:
    def train() -> None:
        share = 10 // max(workers, 1)
        with pytest.raises(
            ValueError, match=rf"10 samples over \d workers? are {share} for each, less than a batch of 11"
        ):
            prepare_data_loader(DataLoader(numbers(10), batch_size=11, drop_last=True))
        with pytest.warns(UserWarning, match=rf"are {share} for each, less than batch_size=11"):
            loader = prepare_data_loader(DataLoader(numbers(10), batch_size=11))
        with pytest.raises(ValueError, match="0 samples over"):
            prepare_data_loader(DataLoader([], batch_size=2))
        with pytest.raises(ValueError, match="is already prepared"):
            prepare_data_loader(loader)
        with pytest.raises(TypeError, match="expects a torch DataLoader, got list"):
            prepare_data_loader([1, 2])
        with pytest.raises(ValueError, match="expected the keys epoch, samples, seed, size"):
            loader.load_state_dict({"epoch": 3})
        with pytest.raises(ValueError, match="over 11 samples, and this one has 10"):
            loader.load_state_dict({"epoch": 3, "samples": 2, "seed": 0, "size": 11})

    assert fit(train, workers).error is None


def test_outside_of_a_worker() -> None:
    with pytest.raises(RuntimeError, match="`prepare_data_loader` cannot be used outside"):
        prepare_data_loader(DataLoader(numbers(2)))


def sampler_epochs(loader: Any, epochs: list[int]) -> list[list[int]]:
    """As in scripts for torch."""
    seen = []
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        seen.append(flat(epoch_of(loader)))
    return seen


class ByLength:
    """A user-defined batch sampler with an attribute."""

    longest = 7

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[list[int]]:
        import random

        return iter(random.sample([[0, 1], [2, 3], [4, 5], [6, 7]], 4))


KINDS: dict[str, Callable[[], Any]] = {
    "shuffle": lambda: DataLoader(numbers(8), batch_size=2, shuffle=True),
    "in order": lambda: DataLoader(numbers(8), batch_size=2),
    "no batches": lambda: DataLoader(numbers(8), batch_size=None, shuffle=True),
    "a sampler": lambda: DataLoader(numbers(100), batch_size=2, sampler=Weighted()),
    "a sampler of batches": lambda: DataLoader(numbers(8), batch_sampler=ByLength()),
    "torch's own": lambda: DataLoader(
        numbers(8), batch_size=2, sampler=DistributedSampler(range(8), num_replicas=2, rank=trireme_rank())
    ),
    "torch's own in batches": lambda: DataLoader(
        numbers(8),
        batch_sampler=BatchSampler(DistributedSampler(range(8), num_replicas=2, rank=trireme_rank()), 2, False),
    ),
    "a stream": lambda: DataLoader(Stream(), batch_size=2),
    "a stream without batches": lambda: DataLoader(Stream(), batch_size=None),
}


def trireme_rank() -> int:
    return int(trireme.get_context().get_world_rank())


def items_of(loader: Any) -> list[int]:
    return [int(item) for batch in loader for item in torch.as_tensor(batch).flatten()]


@pytest.mark.parametrize("kind", KINDS)
def test_set_epoch_of_the_sampler(kind: str) -> None:
    make = KINDS[kind]

    def train() -> None:
        counted = prepare_data_loader(make())
        expected = [items_of(counted) for _ in range(4)]
        loader = prepare_data_loader(make())
        assert isinstance(loader.sampler, DistributedSampler)
        assert (loader.sampler.rank, loader.sampler.num_replicas) == (trireme_rank(), 2)
        for epoch in [0, 1, 1, 3, 0, 1, 2]:  # the loader's own count, and other epochs
            loader.sampler.set_epoch(epoch)
            assert items_of(loader) == expected[epoch]
            assert loader.sampler.epoch == epoch
        assert items_of(loader) == expected[3]  # calling it is optional
        # Taking one batch, as some scripts do, is not an epoch.
        loader.sampler.set_epoch(1)
        next(iter(loader))
        loader.sampler.set_epoch(1)
        assert items_of(loader) == expected[1]
        if kind == "a sampler of batches":
            assert loader.batch_sampler.longest == 7
        with pytest.raises(TypeError, match="expected an integer"):
            loader.sampler.set_epoch("3")

    assert fit(train).error is None


def test_set_epoch_of_the_users_own_sampler() -> None:
    def train() -> None:
        sampler = DistributedSampler(range(8), seed=3)
        loader = prepare_data_loader(DataLoader(numbers(8), batch_size=2, sampler=sampler))
        expected = DistributedSampler(range(8), seed=3)
        for epoch in [0, 1, 4, 2]:
            sampler.set_epoch(epoch)
            expected.set_epoch(epoch)
            assert flat(epoch_of(loader)) == list(expected)

    assert fit(train).error is None


def test_set_epoch_after_a_restart_resumes_in_the_middle() -> None:
    def train() -> None:
        make: Any = lambda: prepare_data_loader(DataLoader(numbers(24), batch_size=2, shuffle=True))  # noqa: E731
        whole = sampler_epochs(make(), [0, 1, 2, 3])
        loader = make()
        loader.load_state_dict({"epoch": 2, "samples": 8, "seed": 0, "size": 24})
        assert sampler_epochs(loader, [2, 3]) == [whole[2][4:], whole[3]]
        loader.load_state_dict({"epoch": 2, "samples": 8, "seed": 0, "size": 24})
        assert sampler_epochs(loader, [1, 2]) == [whole[1], whole[2]]  # another epoch was set
        # An older iterator does not move the position of the newer one.
        kept = iter(loader)
        next(kept)
        loader.sampler.set_epoch(3)
        now = iter(loader)
        next(now)
        place = loader.state_dict()
        assert place["epoch"] == 3 and place["samples"] == 4
        next(kept)
        del kept
        assert loader.state_dict() == place and loader._position() == place

    assert fit(train).error is None


def test_the_script_of_torchs_tutorial() -> None:
    """https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html, with prepare_* instead of its setup."""

    class MyTrainDataset(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __init__(self, size: int) -> None:
            self.size = size
            self.data = [(torch.full((20,), float(i)), torch.rand(1)) for i in range(size)]

        def __len__(self) -> int:
            return self.size

        def __getitem__(self, index: int) -> Any:
            return self.data[index]

    class Trainer:
        def __init__(self, model: Any, train_data: Any, optimizer: Any) -> None:
            self.model, self.train_data, self.optimizer = model, train_data, optimizer
            self.seen: list[list[int]] = []

        def _run_batch(self, source: Any, targets: Any) -> None:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(source), targets)
            loss.backward()
            self.optimizer.step()

        def _run_epoch(self, epoch: int) -> None:
            b_sz = len(next(iter(self.train_data))[0])
            print(f"Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
            self.train_data.sampler.set_epoch(epoch)
            self.seen.append([])
            for source, targets in self.train_data:
                self.seen[-1] += [int(row[0]) for row in source]
                self._run_batch(source, targets)

        def train(self, max_epochs: int) -> None:
            for epoch in range(max_epochs):
                self._run_epoch(epoch)

    def train() -> Any:
        from trireme.torch import prepare_model

        torch.manual_seed(0)
        model = prepare_model(torch.nn.Linear(20, 1))
        data = prepare_data_loader(DataLoader(MyTrainDataset(64), batch_size=8, pin_memory=False, shuffle=True))
        trainer = Trainer(model, data, torch.optim.SGD(model.parameters(), lr=1e-3))
        trainer.train(3)
        assert len(data.sampler) * 2 == len(data.dataset)
        return gathered(trainer.seen)

    ranks = fit(train).return_value
    for epoch in range(3):
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == list(range(64))
        expected = DistributedSampler(range(64), num_replicas=2, rank=0)
        expected.set_epoch(epoch)
        assert ranks[0][epoch] == list(expected)
