"""trireme::torch::prepare_data_loader(): the same order and position as in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD, checked, result_of, run

torch = pytest.importorskip("torch")

PROGRAM = BUILD / "tests/torch_program"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` with libtorch first"),
]


def batches_of(name: str) -> dict[int, dict[int, list[list[int]]]]:
    """By epoch and rank."""
    found: dict[int, dict[int, list[list[int]]]] = {}
    for row in result_of(name).metrics_history():
        found.setdefault(row["metrics"]["epoch"], {})[row["rank"]] = row["metrics"]["batches"]
    return found


def in_python(size: int, ranks: int, rank: int, epoch: int, batch: int, drop_last: bool, shuffle: bool) -> Any:
    sampler = torch.utils.data.DistributedSampler(range(size), ranks, rank, shuffle=shuffle, seed=3, drop_last=False)
    sampler.set_epoch(epoch)
    indices = list(sampler)
    batches = [indices[i : i + batch] for i in range(0, len(indices), batch)]
    whole = size // (batch * ranks)
    return batches[:whole] if drop_last else batches


@pytest.mark.parametrize(
    ("size", "drop_last", "shuffle", "threads"),
    [(24, False, True, 0), (23, False, True, 2), (23, True, True, 0), (10, False, False, 0)],
)
def test_order_is_that_of_python(size: int, drop_last: bool, shuffle: bool, threads: int) -> None:
    options = {"drop_last": str(drop_last).lower(), "shuffle": str(shuffle).lower(), "threads": threads}
    words = [word for item in options.items() for word in item]
    checked(PROGRAM, "loaders", "data", 3, "data", "size", size, "batch", 2, *words)
    seen = batches_of("data")
    for epoch in range(2):
        for rank in range(3):
            assert seen[epoch][rank] == in_python(size, 3, rank, epoch, 2, drop_last, shuffle)
    assert (seen[0] != seen[1]) == shuffle


@pytest.mark.parametrize("threads", [0, 2])
def test_a_position_is_valid_for_any_number_of_ranks(threads: int) -> None:
    data = ("size", 24, "batch", 2, "threads", threads)
    out = checked(PROGRAM, "loaders", "data", 2, "left", *data, "stop", 3)
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    for ranks in (2, 3):
        checked(PROGRAM, "loaders", "data", ranks, f"on_{ranks}", *data, "from", checkpoint[1])
        done = [i for batches in batches_of("left")[1].values() for batch in batches for i in batch]
        assert len(done) == 12
        rest = batches_of(f"on_{ranks}")
        assert list(rest) == [1], "the first epoch has ended"
        assert sorted(done + [i for batches in rest[1].values() for batch in batches for i in batch]) == list(range(24))
        if ranks == 2:
            assert rest[1][1] == in_python(24, 2, 1, 1, 2, False, True)[3:]


def test_python_resumes_from_the_position() -> None:
    out = checked(PROGRAM, "loaders", "data", 2, "left", "size", 24, "batch", 2, "stop", 3)
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    position = trireme.load_state(checkpoint[1])["data"]
    assert position == {"epoch": 1, "samples": 12, "seed": 3, "size": 24}

    def train() -> list[int]:
        from torch.utils.data import DataLoader

        from trireme.torch import prepare_data_loader

        loader = prepare_data_loader(DataLoader(range(24), batch_size=2, shuffle=True))
        loader.load_state_dict(position)
        return [i for batch in loader for i in batch.tolist()]

    rest = trireme.DataParallelTrainer(train).fit().return_value
    assert rest == [i for batch in in_python(24, 1, 0, 1, 2, False, True) for i in batch][12:]


def test_position_in_another_dataset(tmp_path: Path) -> None:
    trireme.save_state(tmp_path / "data", {"data": {"epoch": 1, "samples": 12, "seed": 3, "size": 25}})
    done = run(PROGRAM, "loaders", "data", 1, "other", "size", 24, "batch", 2, "from", tmp_path / "data")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "for a dataset of 25 samples, but this one has 24" in done.stdout


@pytest.mark.parametrize("prefetch", ["false", "true"])
def test_epoch_that_is_left(prefetch: str) -> None:
    checked(PROGRAM, "loaders", "leave", 2, "leave", "prefetch", prefetch)


def test_tensors_are_found_in_any_batch() -> None:
    checked(PROGRAM, "loaders", "tensors", 1, "tensors")


def test_columns_of_datasets_with_other_types_and_devices() -> None:
    checked(PROGRAM, "loaders", "types", 1, "types")


def test_ranks_with_different_data() -> None:
    done = run(PROGRAM, "loaders", "data", 2, "uneven", "size", 24, "batch", 2, "uneven", "true")
    assert done.returncode == 3, done.stdout + done.stderr
    samples = r"rank \d has 2[45] samples in batches of 2, shuffled with seed 3"
    assert re.search(rf"FAILED rank [01]: .*the ranks have different data: {samples}, and {samples}; use", done.stdout)


@pytest.mark.parametrize(
    ("kill", "options"),
    [
        (2, {}),
        (3, {"prefetch": "true", "threads": 2}),
        (0, {}),  # the newest checkpoint is that of the last batch of the first epoch
        (0, {"size": 22, "drop_last": "true"}),  # the same, with remaining samples that do not fill a batch
    ],
)
def test_a_killed_run_resumes_from_its_position(kill: int, options: dict[str, object]) -> None:
    settings: dict[str, Any] = {"size": 24, "batch": 2, "drop_last": "false", "failures": 1, "kill": kill, **options}
    checked(PROGRAM, "loaders", "restart", 2, "restart", *[word for item in settings.items() for word in item])
    size, drop_last = settings["size"], settings["drop_last"] == "true"
    for rank in range(2):
        rows = [row["metrics"] for row in result_of("restart").metrics_history() if row["rank"] == rank]
        again = [row for row in rows if row["attempt"] == 1]
        assert again[0]["place"] == {"epoch": 1, "samples": 4 * kill + 4, "seed": 3, "size": size}
        for epoch in range(2):
            # By position, so that nothing appears twice in the history after a failure.
            seen = {row["place"]["samples"]: row["batch"] for row in rows if row["place"]["epoch"] == epoch}
            assert [seen[samples] for samples in sorted(seen)] == in_python(size, 2, rank, epoch, 2, drop_last, True)


def test_the_position_is_restored_automatically_or_not() -> None:
    """In a separate run that starts from the checkpoint."""
    data = ("size", 24, "batch", 2)
    out = checked(PROGRAM, "loaders", "data", 2, "left", *data, "stop", 3, "by_hand", "false")
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    checked(PROGRAM, "loaders", "data", 2, "on", *data, "from", checkpoint[1])
    assert batches_of("on") == {1: {rank: in_python(24, 2, rank, 1, 2, False, True)[3:] for rank in range(2)}}
    checked(PROGRAM, "loaders", "data", 2, "anew", *data, "from", checkpoint[1], "resume", "false")
    assert list(batches_of("anew")) == [0, 1]
    done = run(PROGRAM, "loaders", "data", 2, "other", "size", 26, "batch", 2, "from", checkpoint[1])
    assert done.returncode == 3, done.stdout + done.stderr
    assert "in the middle of an epoch over 24 samples, and this loader has 26 samples; use the same data" in done.stdout

    def train() -> list[int]:
        from torch.utils.data import DataLoader

        from trireme.torch import prepare_data_loader

        loader = prepare_data_loader(DataLoader(range(24), batch_size=2, shuffle=True))
        return [i for batch in loader for i in batch.tolist()]

    from_there = trireme.Checkpoint(checkpoint[1])
    rest = trireme.DataParallelTrainer(train, resume_from_checkpoint=from_there).fit().return_value
    assert rest == [i for batch in in_python(24, 1, 0, 1, 2, False, True) for i in batch][12:], "so does Python"


def test_epoch_that_is_left_and_data_that_changes_between_epochs() -> None:
    data = ("batch", 2, "failures", 1)
    out = checked(PROGRAM, "loaders", "leave_and_report", 2, "left", "size", 24, *data)
    checkpoint = re.search(r"^CHECKPOINT (.*)$", out, re.MULTILINE)
    assert checkpoint is not None, out
    checked(PROGRAM, "loaders", "data", 2, "more", "size", 26, *data, "from", checkpoint[1])
    assert list(batches_of("more")) == [1]


def test_loader_without_a_batch() -> None:
    done = run(PROGRAM, "loaders", "data", 2, "small", "size", 3, "batch", 2, "drop_last", "true")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "batch_size 2 on 2 ranks needs more than the 3 samples of the dataset" in done.stdout
