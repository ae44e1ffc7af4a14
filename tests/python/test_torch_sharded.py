from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trireme
from trireme import Checkpoint, CheckpointUploadMode, Result, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, get_device_mesh, load_sharded, prepare_model, save_sharded

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 3


def fit(function: Any, workers: int, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


class Network(torch.nn.Module):  # type: ignore[misc]
    """Sizes that are not divisible by any number of workers, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(7, 10)
        self.second = torch.nn.Linear(10, 5)
        self.last = torch.nn.Linear(5, 1)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Any) -> Any:
        self.seen += 1
        return self.last(torch.tanh(self.second(torch.tanh(self.first(inputs)))))


def parallel(layout: dict[str, int]) -> Any:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    network = Network()
    if not layout:
        return prepare_model(network, parallel_strategy="fsdp"), None
    mesh = get_device_mesh(layout)
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    parallelize_module(network, mesh["tp"], plan)
    return fully_shard(network, mesh=mesh["dp"]), mesh["dp"]


def state_of(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def flat(tree: Any, place: str = "") -> dict[str, Any]:
    """Full tensors and values by name."""
    if isinstance(tree, dict):
        return {name: leaf for key, value in tree.items() for name, leaf in flat(value, f"{place}/{key}").items()}
    if isinstance(tree, list):
        return {name: leaf for i, value in enumerate(tree) for name, leaf in flat(value, f"{place}/{i}").items()}
    if hasattr(tree, "full_tensor"):
        tree = tree.full_tensor()
    return {place: tree.detach().clone() if isinstance(tree, torch.Tensor) else tree}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    assert a.keys() == b.keys()
    same = [
        torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype
        if isinstance(a[key], torch.Tensor)
        else a[key] == b[key]
        for key in a
    ]
    return all(same)


def train(config: dict[str, Any]) -> Any:
    """The losses of the steps, and the states before and after them, of all ranks."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import set_state_dict

    model, data_mesh = parallel(config["layout"])
    rank, count = (
        (data_mesh.get_local_rank(), data_mesh.size()) if data_mesh else (dist.get_rank(), dist.get_world_size())
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    first, loaded = 0, None
    if checkpoint := trireme.get_checkpoint():
        state = state_of(model, optimizer, -1)
        load_sharded(checkpoint, state)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first, loaded = state["step"], flat(state_of(model, optimizer, state["step"]))
    losses = []
    for step in range(first, first + STEPS):
        inputs = torch.randn(24, 7, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs[rank::count]).squeeze(1) - inputs.sum(1)[rank::count]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(total := loss.detach().clone())
        losses.append(total.item() / dist.get_world_size())
    after = state_of(model, optimizer, first + STEPS)
    if config["mode"] is not None:
        trireme.report({}, checkpoint=save_sharded(after), checkpoint_upload_mode=config["mode"])
        if config["mode"] is CheckpointUploadMode.ASYNC:  # stores the state at the time of report()
            with torch.no_grad():
                kept = flat(after)
                for parameter in model.parameters():
                    parameter.zero_()
            return losses, loaded, kept
    return losses, loaded, flat(after)


@pytest.fixture(scope="module")
def reference() -> list[float]:
    """Unsharded, in one process."""
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for step in range(2 * STEPS):
        inputs = torch.randn(24, 7, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("layout", "others", "mode"),
    [
        ({}, [(2, {"dp": 1, "tp": 2}), (3, {}), (1, {})], CheckpointUploadMode.SYNC),
        ({"dp": 2, "tp": 2}, [(3, {})], CheckpointUploadMode.ASYNC),
    ],
    ids=["fsdp", "dp_x_tp"],
)
def test_any_number_of_workers_can_resume(
    layout: dict[str, int], others: Any, mode: CheckpointUploadMode, reference: list[float]
) -> None:
    result = fit(train, 4, train_loop_config={"layout": layout, "mode": mode})
    losses, _, saved = result.return_value
    torch.testing.assert_close(losses, reference[:STEPS], atol=1e-5, rtol=1e-4)
    checkpoint = result.checkpoint
    assert checkpoint is not None
    assert equal(flat(trireme.load_state(checkpoint)), saved)
    for workers, other in others:
        config = {"layout": other, "mode": None}
        losses, loaded, _ = fit(
            train, workers, train_loop_config=config, resume_from_checkpoint=checkpoint
        ).return_value
        assert equal(loaded, saved), workers
        torch.testing.assert_close(losses, reference[STEPS:], atol=1e-5, rtol=1e-4)


ROWS = torch.arange(10.0).view(5, 2)
COPIES = {str(i): torch.full((3,), i) for i in range(8)}


def pieces(rank: int) -> dict[str, Any]:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = get_device_mesh({"all": -1})
    return {
        "rows": distribute_tensor(ROWS, mesh, [Shard(0)]),
        "columns": distribute_tensor(ROWS.T.to(torch.complex128), mesh, [Shard(1)]),
        "copies": {key: distribute_tensor(value, mesh, [Replicate()]) for key, value in COPIES.items()},
        "empty": distribute_tensor(torch.empty(0, 3), mesh, [Shard(0)]),
        "plain": {key: value + 1 for key, value in COPIES.items()},
        "own": {rank: torch.tensor(rank)},
        "pair": (torch.ones(2, dtype=torch.bfloat16), "text", None),
        "rank": rank,
    }


def save_pieces(config: dict[str, Any]) -> None:
    rank = trireme.get_context().get_world_rank()
    checkpoint = save_sharded(pieces(rank))
    if config["as_files"]:
        assert checkpoint.path  # is a directory from now on
    trireme.report({}, checkpoint=checkpoint)


@pytest.fixture(scope="module", params=[False, True], ids=["from_memory", "from_files"])
def stored(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    storage = RunConfig(storage_path=tmp_path_factory.mktemp("pieces"))
    checkpoint = fit(save_pieces, 2, train_loop_config={"as_files": request.param}, run_config=storage).checkpoint
    assert checkpoint is not None
    return checkpoint


@pytest.fixture
def copied(stored: Checkpoint, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(stored.path, tmp_path / "copied"))


def template() -> dict[str, Any]:
    return {
        "rows": torch.zeros(5, 2),
        "columns": torch.zeros(2, 5, dtype=torch.complex128),
        "copies": {key: torch.zeros(3, dtype=torch.int64) for key in COPIES},
        "empty": torch.ones(0, 3),
        "plain": {key: torch.zeros(3, dtype=torch.int64) for key in COPIES},
        "own": {rank: torch.tensor(-1) for rank in range(2)},
        "pair": (torch.zeros(2, dtype=torch.bfloat16), None, 3),
        "rank": None,
    }


def test_every_kind_of_tensor_comes_back(stored: Checkpoint) -> None:
    expected = {
        "rows": ROWS,
        "columns": ROWS.T.to(torch.complex128),
        "copies": COPIES,
        "empty": torch.empty(0, 3),
        "plain": {key: value + 1 for key, value in COPIES.items()},
        "own": {0: torch.tensor(0), 1: torch.tensor(1)},
        "rank": 0,
    }
    state = template()
    rows, ones = state["rows"], state["pair"][0]
    load_sharded(stored, state)
    assert state["rows"] is rows and state["pair"][0] is ones  # in place
    for found in (stored.to_dict(), trireme.load_state(stored.path), state):
        first, *others = found.pop("pair")
        assert torch.equal(first, torch.ones(2, dtype=torch.bfloat16)) and others == ["text", None]
        assert equal(flat(found), flat(expected))
    assert trireme.load_state(stored, rank=1)["rank"] == 1
    assert torch.equal(trireme.load_state(stored, rank=1)["rows"], ROWS)


def test_writing_is_spread(stored: Checkpoint) -> None:
    folder = Path(stored.path)
    names = [
        [name for name in trireme.load_state(path) if name.startswith(("copies", "plain"))]
        for path in (folder / "state.safetensors", folder / "rank_1/state.safetensors")
    ]
    assert len(names[0]) + len(names[1]) == 16  # each by one
    assert len(names[0]) >= 4 and len(names[1]) >= 4


def refusal(checkpoint: Any, state: dict[str, Any], **options: Any) -> list[str]:
    tensors = {key: value for key, value in flat(state).items() if isinstance(value, torch.Tensor)}
    before = {key: value for key, value in tensors.items() if not value.is_meta}
    with pytest.raises(ValueError, match=r"load_sharded\(\): .* does not fit the state to load into:\n") as caught:
        load_sharded(checkpoint, state, **options)
    after = flat(state)
    assert all(torch.equal(after[key], value) for key, value in before.items())  # nothing was changed
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_what_does_not_fit_is_named(stored: Checkpoint) -> None:
    state = template()
    del state["copies"]["3"], state["rank"]
    state["copies"]["eleven"] = torch.zeros(3)
    state["more"] = {"step": 3}
    assert refusal(stored, state) == [
        "missing: copies/eleven",
        "missing: more",
        "unexpected: copies/3",
        "unexpected: rank",
    ]
    load_sharded(stored, state, strict=False)
    assert torch.equal(state["rows"], ROWS) and state["more"] == {"step": 3}
    different = template() | {"rows": torch.zeros(2, 5), "empty": torch.zeros(0, 3).double(), "rank": torch.zeros(1)}
    different["columns"] = {"x": 3}
    different["own"][0] = torch.empty((), dtype=torch.int64, device="meta")
    assert refusal(stored, different | {"pair": None}, strict=False) == [
        "rows: stored (5, 2) float32, the state has (2, 5) float32",
        "columns: stored (2, 5) complex128, the state has a dict",
        "empty: stored (0, 3) float32, the state has (0, 3) float64",
        "own/0 is on the meta device and has no memory: materialize the model first",
        "pair: stored a tuple, the state has a NoneType",
        "rank: stored a int, the state has (1,) float32",
    ]
    with pytest.raises(TypeError, match="expects a dict to load into, got list"):
        load_sharded(stored, [])  # type: ignore[arg-type]


def test_a_part_that_is_not_there(copied: Path) -> None:
    shutil.rmtree(copied / "rank_1")
    words = (
        "'rows' (5, 2) F32 is incomplete: [3:5, 0:2] is missing, only ranks 0 have stored parts; load a checkpoint "
        "that every rank has reported with report()"
    )
    with pytest.raises(ValueError) as caught:
        trireme.load_state(copied)
    assert str(caught.value) == words
    lines = refusal(copied, {"rows": torch.zeros(5, 2), "own": {1: torch.tensor(0)}}, strict=True)
    assert lines[0] == words and "missing: own/1" in lines
    (copied / "state.json").unlink()
    with pytest.raises((OSError, RuntimeError), match=r"copied/state\.json"):
        load_sharded(copied, template())


def test_only_what_overlaps_is_read_and_that_is_compared_with_its_checksum(copied: Path) -> None:
    file = copied / "rank_1/state.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    def train() -> Any:
        import torch.distributed as dist

        rank = dist.get_rank()
        state = {"rows": pieces(rank)["rows"]}
        with torch.no_grad():
            state["rows"].to_local().zero_()
        try:
            load_sharded(Checkpoint(copied), state, strict=False)
            found = state["rows"].to_local().tolist()
        except (OSError, RuntimeError, ValueError) as error:
            found = str(error)
        values: list[Any] = [None, None]
        dist.all_gather_object(values, found)
        return values

    fine, damaged = fit(train, 2).return_value
    assert fine == ROWS[:3].tolist()
    assert "copied/rank_1/state.safetensors is damaged" in damaged


def test_refused_when_saving() -> None:
    def train() -> None:
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor, Partial

        rank = dist.get_rank()
        with pytest.raises(
            ValueError, match=rf"'a/x' is \({rank + 1},\) float32 on rank {rank} and \({2 - rank},\) float32 on rank"
        ):
            save_sharded({"a": {"x": torch.zeros(rank + 1)}})
        mesh = get_device_mesh({"all": 2})
        with pytest.raises(ValueError, match="'a' has partial results"):
            save_sharded({"a": DTensor.from_local(torch.ones(2), mesh, [Partial()])})
        with pytest.raises(TypeError, match=r"trireme\.torch\.save_sharded\(\) on every rank"):
            trireme.report({}, checkpoint=Checkpoint.from_dict({"a": pieces(rank)["rows"]}, allow_pickle=False))
        with pytest.raises(TypeError, match="expects a dict, got int"):
            save_sharded(3)  # type: ignore[arg-type]
        state = {"x": torch.zeros(1), f"y{rank}": 1}
        with pytest.raises(ValueError) as caught:
            load_sharded(Checkpoint.from_dict({"x": torch.ones(1), "y0": 2, "z": 3}), state)
        assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
            "missing: y1 (on rank 1)",
            "unexpected: z",
        ]

    assert fit(train, 2).error is None


def test_one_process_stores_a_plain_state() -> None:
    def train() -> Any:
        model = prepare_model(torch.nn.Linear(2, 1), parallel_strategy="fsdp")
        state = {"model": model.state_dict(), "step": 3}
        trireme.report({}, checkpoint=save_sharded(state))
        checkpoint = trireme.get_checkpoint()
        assert checkpoint is not None
        again = {"model": {key: torch.zeros_like(value) for key, value in state["model"].items()}, "step": 0}
        load_sharded(checkpoint, again)
        assert equal(flat(again), flat(state))
        return flat(state)

    for workers in (0, 1):
        result = fit(train, workers)
        assert result.checkpoint is not None
        assert equal(flat(result.checkpoint.to_dict()), result.return_value)
    file = Path(result.checkpoint.path) / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises((OSError, RuntimeError, ValueError), match=r"state\.safetensors is damaged"):
        load_sharded(result.checkpoint, {"model": torch.nn.Linear(2, 1).state_dict()}, strict=False)


@pytest.mark.parametrize("dims", [0, 1, 2, 3])
def test_boxes(dims: int) -> None:
    """Overlaps and gaps are those of a mask with one element per element of the tensor."""
    from trireme._sharded_tensors import Box, Part, ShardedTensor

    random = np.random.default_rng(dims)
    for _ in range(200):
        shape = tuple(int(size) for size in random.integers(0, 6, dims))

        def box(within: tuple[int, ...] = shape) -> Box:
            starts = [int(random.integers(0, size + 1)) for size in within]
            return Box(
                tuple(starts), tuple(int(random.integers(0, s - a + 1)) for s, a in zip(within, starts, strict=True))
            )

        wanted = box()
        parts = [Part(each, torch.full(each.shape, float(n))) for n, each in enumerate(box() for _ in range(4))]
        tensor = ShardedTensor(shape, "F32", parts)
        covered, asked = np.zeros(shape, bool), np.zeros(shape, bool)
        asked[wanted.within(tensor.whole)] = True
        common = {id(part): each for each, part in tensor.overlaps(wanted)}
        for part in parts:
            mine = np.zeros(shape, bool)
            mine[part.box.within(tensor.whole)] = True
            covered |= mine
            both = np.zeros(shape, bool)
            if id(part) in common:
                both[common[id(part)].within(tensor.whole)] = True
            assert (both == (mine & asked)).all()
            assert (id(part) in common) == bool((mine & asked).any())
        gap = tensor.gap_in(wanted)
        assert (gap is None) == bool(covered[asked].all())
        if gap is not None:
            assert 0 not in gap.shape
            assert not covered[gap.within(tensor.whole)].any()
            assert asked[gap.within(tensor.whole)].all()
    assert str(Box((1, 2), (2, 3))) == "[1:3, 2:5]"
    with pytest.raises(ValueError, match="different numbers of dimensions"):
        ShardedTensor((4,), "F32", [Part(Box((0,), (4,)), torch.ones(4))]).overlaps(Box((0, 0), (4, 1)))


@pytest.mark.parametrize("size", [0, 1, 5, 7, 12, 13])
def test_layouts_are_those_of_torch(size: int) -> None:
    """Splits dimension by dimension like DTensor, also with fully_shard after tensor parallelism."""
    from trireme.torch._layout import _runs

    def held(cuts: Any) -> list[int]:
        return [i for start, length in _runs(size, tuple(cuts)) for i in range(start, start + length)]

    def chunk(values: Any, count: int, index: int) -> list[int]:
        chunks = torch.chunk(torch.as_tensor(values), count) if len(values) else []
        return chunks[index].tolist() if index < len(chunks) else []

    whole = list(range(size))
    for left in range(3):
        assert held([(3, left, 1)]) == chunk(whole, 3, left)
        strided = [chunk(chunk(whole, 2, i), 3, left) for i in range(2)]
        assert held([(3, left, 2)]) == strided[0] + strided[1]  # without the dimension that was split before
        for right in range(2):
            assert held([(3, left, 1), (2, right, 1)]) == chunk(chunk(whole, 3, left), 2, right)
            assert held([(3, left, 2), (2, right, 1)]) == chunk(chunk(whole, 2, right), 3, left)
