"""save_state() and load_state(): values are restored bit for bit, and errors name the place of invalid values."""

from __future__ import annotations

import collections
import enum
import json
import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD


def around(folder: Path, state: Any, **options: Any) -> Any:
    trireme.save_state(folder / "state", state, **options)
    return trireme.load_state(folder / "state", **options)


def python(code: str, *arguments: Any, without: tuple[str, ...] = ()) -> str:
    """Runs a program in which the modules `without` cannot be imported."""
    block = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    command = [sys.executable, "-c", block + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PLAIN = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**127 + 1, -(10**300)],
    "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf],
    "text": 'grüß "quoted" \\ \n\t\x00 😀',
    "bytes": b"\x00\xff",
    "long bytes": bytes(range(256)) * 100,
    "empty": ["", b"", [], (), {}, [[]], ((),)],
    "tuple": (1, (2, [3, (4,)])),
    "keys": {0: "a", -1: "b", None: "c", (1, "x"): "d", 2.5: "e", True: "f", b"k": "g", "$tensor": "h", 2**70: "i"},
    "": "no name",
    "$looks": {"$tensor": "like ours", "$float": "nan", "$dict": [], "$tuple": [1]},
    "complex": 1.5 - 2j,
}


def test_python_values(tmp_path: Path) -> None:
    loaded = around(tmp_path, PLAIN)
    assert loaded == PLAIN
    assert list(loaded) == list(PLAIN)
    assert repr(loaded) == repr(PLAIN)  # -0.0, True and 1, tuple and list
    assert math.isnan(around(tmp_path, {"x": [math.nan]})["x"][0])
    assert around(tmp_path, {"x": 10**5000}) == {"x": 10**5000}  # which Python writes only in hexadecimal


def test_neither_torch_nor_numpy_is_needed_for_python_values(tmp_path: Path) -> None:
    code = """
import trireme
trireme.save_state(sys.argv[1], {"a": [1, (2.5, b"x")], 3: 10**30})
assert trireme.load_state(sys.argv[1]) == {"a": [1, (2.5, b"x")], 3: 10**30}
"""
    python(code, tmp_path, without=("torch", "numpy"))
    code = "import trireme; trireme.load_state(sys.argv[1]); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert python(code, tmp_path) == "[]"


def test_types_that_are_dicts_lists_and_numbers_become_such(tmp_path: Path) -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    state = {
        "ordered": collections.OrderedDict(b=1, a=2),
        "default": collections.defaultdict(list, {"x": [1]}),
        "counter": collections.Counter("aab"),
        "text": Text("x"),
        "number": Number(3),
        "bytearray": bytearray(b"xy"),
        "long": Number(2**80),
    }
    loaded = around(tmp_path, state)
    assert loaded == {
        "ordered": {"b": 1, "a": 2},
        "default": {"x": [1]},
        "counter": {"a": 2, "b": 1},
        "text": "x",
        "number": 3,
        "bytearray": b"xy",
        "long": 2**80,
    }
    assert {type(value) for value in loaded.values()} == {dict, str, int, bytes}


def test_generators_of_random_numbers(tmp_path: Path) -> None:
    generator = random.Random(7)
    generator.gauss(0, 1)  # leaves half a pair in its state
    state = around(tmp_path, {"random": generator.getstate()})["random"]
    assert state == generator.getstate()
    again = random.Random()
    again.setstate(state)
    assert [again.random() for _ in range(5)] == [generator.random() for _ in range(5)]


class Color(enum.IntEnum):
    RED = 1


class Thing:
    def __init__(self) -> None:
        self.value = 5


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("value", [Thing(), Color.RED, {1, 2}, Point(1, 2), len, range(3), Path("x")])
def test_a_value_that_cannot_be_stored_is_named_with_its_path(tmp_path: Path, value: Any) -> None:
    place = r"state\['a'\]\[0\]\[\('k', 1\)\] is of type .*" + type(value).__name__
    with pytest.raises(TypeError, match=place + r", which cannot be stored without pickle: .*allow_pickle=True"):
        trireme.save_state(tmp_path / "state", {"a": [{("k", 1): value}]})
    assert not (tmp_path / "state").exists()


def test_pickle_only_when_both_sides_ask(tmp_path: Path) -> None:
    state = {"plain": 1, "list": [Color.RED, {1, 2}]}
    loaded = around(tmp_path, state, allow_pickle=True)
    assert loaded == state
    assert loaded["list"][0] is Color.RED
    with pytest.raises(TypeError, match=r"state\['list'\]\[0\] is a pickle, which can run .*allow_pickle=True"):
        trireme.load_state(tmp_path / "state")
    with pytest.raises(TypeError, match=r"state\['f'\] is of type function, which cannot be pickled: "):
        trireme.save_state(tmp_path / "state", {"f": lambda: 1}, allow_pickle=True)


def test_a_state_that_contains_itself(tmp_path: Path) -> None:
    state: dict[str, Any] = {"a": [1]}
    state["a"].append(state)
    with pytest.raises(ValueError, match="nested too deeply: check for a list or dict that contains itself"):
        trireme.save_state(tmp_path / "state", state)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a state must be a dict, got list"):
        trireme.save_state(tmp_path / "state", [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"state\['a'\] is text that UTF-8 cannot encode"):
        trireme.save_state(tmp_path / "state", {"a": "\udcff"})
    with pytest.raises(ValueError, match="text that UTF-8 cannot encode"):
        trireme.save_state(tmp_path / "state", {"\udcff": 1})
    with pytest.raises(FileNotFoundError, match=r"no state in .*absent"):
        trireme.load_state(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match=r"could not open .*empty/state\.json"):
        trireme.load_state(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuntimeError, match="file is not a folder"):
        trireme.save_state(tmp_path / "file", {})
    trireme.save_state(tmp_path / "state", {})
    with pytest.raises(FileNotFoundError, match="has no state of rank 3"):
        trireme.load_state(tmp_path / "state", rank=3)


def test_marks_of_a_later_version_and_damaged_ones(tmp_path: Path) -> None:
    trireme.save_state(tmp_path, {})
    for text, why in [
        ('{"a":[{"$later":1}]}', r"state\['a'\]\[0\] is marked \$later, which this version .* does not support"),
        ('{"a":{"$int":"x"}}', r"state\['a'\] is damaged: \$int 'x'"),
        ('{"a":{"$numpy":{"bytes":1,"dtype":"<c16"}}}', r"state\['a'\] is damaged: \$numpy"),
        ('{"a":{"$dict":[[1]]}}', r"state\['a'\] is damaged: '\$dict' must be a list of pairs"),
    ]:
        (tmp_path / "state.json").write_text(text)
        with pytest.raises((TypeError, ValueError), match=why):
            trireme.load_state(tmp_path)


def test_the_files_match_the_docs(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    trireme.save_state(tmp_path, {"model": {"fc": numpy.ones(2, numpy.float32)}, "epoch": 3, "rng": (1, 2)})
    assert sorted(os.listdir(tmp_path)) == ["state.json", "state.safetensors"]
    assert json.loads((tmp_path / "state.json").read_text()) == {
        "model": {"fc": {"$numpy": {"$tensor": "model/fc"}}},
        "epoch": 3,
        "rng": {"$tuple": [1, 2]},
    }
    content = (tmp_path / "state.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert (8 + length) % 64 == 0
    header = json.loads(content[8 : 8 + length])
    assert header == {
        "__metadata__": {"trireme_state": "1"},
        "model/fc": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    assert content[8 + length :] == struct.pack("<ff", 1, 1)


def numpy_arrays() -> list[Any]:
    import numpy as np

    numbers = np.arange(24).reshape(2, 3, 4)
    arrays = [numbers.astype(kind) for kind in "?bBhHiIlLqQefdgFD"]
    arrays += [numbers.astype("c16") * 1j, numbers.astype("M8[ns]"), numbers.astype("m8[s]"), numbers.astype("U5")]
    arrays += [np.array([b"ab", b"c"]), np.float32([np.nan, np.inf, -0.0]), np.array(2.5), np.array(True)]
    arrays += [np.empty((0, 3), "f4"), np.empty((0, 3), "c16"), np.empty((2, 0), "i8")]
    arrays += [numbers.T, numbers[:, ::2], np.asfortranarray(numbers), np.broadcast_to(np.float32(3), (2, 2))]
    return arrays


def test_numpy(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    arrays = numpy_arrays()
    state = {
        "arrays": arrays,
        "scalars": [np.float32(0.1), np.int8(-3), np.bool_(True), np.float64(2.5), np.complex128(1j)],
    }
    for loaded in (around(tmp_path, state), trireme.load_state(tmp_path / "state", mmap=False)):
        for before, after in zip(arrays, loaded["arrays"], strict=True):
            assert type(after) is np.ndarray
            assert (after.dtype, after.shape) == (before.dtype, before.shape)
            assert after.tobytes() == before.tobytes()
            after[...] = np.zeros((), after.dtype)  # writable
        for before, after in zip(state["scalars"], loaded["scalars"], strict=True):
            assert type(after) is type(before)
            assert after == before
    assert around(tmp_path, {"t": np.dtype("float32")}) == {"t": np.dtype("float32")}


def test_numpy_big_endian_comes_back_as_this_machine_has_it(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    loaded = around(tmp_path, {"a": np.array([1, 2], ">i4")})["a"]
    assert loaded.tolist() == [1, 2]
    assert loaded.dtype == np.dtype("<i4")


def test_numpy_that_cannot_be_stored(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    bad = [np.array([object()]), np.zeros(2, [("a", "i4")]), np.ma.masked_array([1, 2], [True, False])]
    for value in bad:
        with pytest.raises(TypeError, match=r"state\['x'\] is .* cannot be stored"):
            trireme.save_state(tmp_path, {"x": value})


def test_numpy_generators(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        generator = np.random.Generator(kind(5))
        generator.random(3)
        state = around(tmp_path, {"g": generator.bit_generator.state})["g"]
        again = np.random.Generator(kind())
        again.bit_generator.state = state
        assert again.random(4).tolist() == generator.random(4).tolist()
    legacy = np.random.RandomState(3)
    legacy.randn(1)
    other = np.random.RandomState()
    other.set_state(around(tmp_path, {"g": legacy.get_state()})["g"])
    assert other.randn(4).tolist() == legacy.randn(4).tolist()


def test_without_torch_tensors_are_arrays_and_without_numpy_the_extra_is_named(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    header = {
        "f": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "BF16", "shape": [1], "data_offsets": [8, 10]},
    }
    text = json.dumps(header).encode()
    data = struct.pack("<ff", 1.5, 2.5) + b"\x80\x3f"
    (tmp_path / "state.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (tmp_path / "state.json").write_text('{"f":{"$tensor":"f"}}')
    code = "import trireme; print(type(x := trireme.load_state(sys.argv[1])['f']), x.tolist())"
    assert python(code, tmp_path, without=("torch",)) == "<class 'numpy.ndarray'> [1.5, 2.5]"
    refused = """
import trireme
try:
    trireme.load_state(sys.argv[1])
except TypeError as error:
    print(error)
"""
    assert "pip install trireme[torch]" in python(refused, tmp_path, without=("torch", "numpy"))
    (tmp_path / "state.json").write_text('{"b":{"$tensor":"b"}}')
    told = python(refused, tmp_path, without=("torch",))
    assert told == "state['b'] is a tensor of type BF16, which only torch has: pip install trireme[torch]"


def test_damage_is_found_in_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    import numpy as np

    def train() -> None:
        checkpoint = trireme.Checkpoint.from_dict({"w": np.arange(1000), "epoch": 1})
        trireme.report({"x": 1}, checkpoint=checkpoint)

    trainer = trireme.DataParallelTrainer(train, run_config=trireme.RunConfig(name="run", storage_path=str(tmp_path)))
    checkpoint = trainer.fit().checkpoint
    assert checkpoint is not None
    assert trireme.load_state(checkpoint)["w"].tolist() == list(range(1000))
    file = Path(checkpoint.path) / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    name = f"{Path(checkpoint.path).name}/state.safetensors"
    with pytest.raises(RuntimeError, match=rf"{name} is damaged: its checksum is \w+, but the manifest lists \w+"):
        trireme.load_state(checkpoint)
    file.write_bytes(content[:-100])
    with pytest.raises(RuntimeError, match=rf"{name} is damaged: it has \d+ bytes, but the manifest lists \d+"):
        trireme.load_state(checkpoint.path)


@pytest.mark.torch
class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch")

    def same(self, before: Any, after: Any) -> None:
        import torch

        assert (after.dtype, after.shape, after.device.type) == (before.dtype, before.shape, "cpu")
        assert not after.requires_grad
        as_bytes = [
            t.detach().resolve_conj().resolve_neg().contiguous().unsqueeze(-1).view(torch.uint8).flatten().tolist()
            for t in (before, after)
        ]
        assert as_bytes[0] == as_bytes[1]

    def test_all_types(self, tmp_path: Path) -> None:
        import torch

        tensors = []
        for dtype in sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str):
            try:
                raw = torch.arange(48, dtype=torch.uint8) % 2
                tensors.append(raw[: 3 * dtype.itemsize].view(dtype))
                torch.empty(0, dtype=dtype)
            except (RuntimeError, TypeError):
                continue  # quantized types and those without memory
        tensors = [tensor for tensor in tensors if not tensor.is_quantized]
        names = {str(tensor.dtype) for tensor in tensors}
        assert {"torch.bfloat16", "torch.uint64", "torch.bool", "torch.complex128", "torch.float8_e4m3fn"} <= names
        loaded = around(tmp_path, {"tensors": tensors})["tensors"]
        for before, after in zip(tensors, loaded, strict=True):
            self.same(before, after)

    def test_all_shapes(self, tmp_path: Path) -> None:
        import torch

        base = torch.randn(4, 6)
        shared = base[0]
        state = {
            "scalar": torch.tensor(2.5),
            "empty": torch.empty(0, 3, dtype=torch.bfloat16),
            "transposed": base.T,
            "strided": base[:, ::2],
            "expanded": torch.ones(1).expand(3, 2),
            "grad": torch.randn(2, requires_grad=True),
            "parameter": torch.nn.Parameter(torch.randn(3)),
            "conj": torch.randn(3, dtype=torch.complex64).conj(),
            "imag": torch.randn(3, dtype=torch.complex64).conj().imag,
            "shared": [base, shared],
            "empty complex": torch.empty(0, 2, dtype=torch.complex128),
            "scalar complex": torch.tensor(1j, dtype=torch.complex128),
        }
        for loaded in (around(tmp_path, state), trireme.load_state(tmp_path / "state", mmap=False)):
            for name, before in state.items():
                pairs = zip(before, loaded[name], strict=True) if isinstance(before, list) else [(before, loaded[name])]
                for tensor, after in pairs:
                    self.same(tensor, after)
                    after.zero_()  # writable
            assert type(loaded["parameter"]) is torch.Tensor

    def test_not_tensors_but_torch(self, tmp_path: Path) -> None:
        import torch

        state = {
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "device": torch.device("cuda", 1),
            "v": torch.__version__,
        }
        loaded = around(tmp_path, state)
        assert loaded == state
        assert type(loaded["size"]) is torch.Size

    def test_what_cannot_be_stored(self, tmp_path: Path) -> None:
        import torch

        quantized = torch.quantize_per_tensor(torch.randn(2), 0.1, 0, torch.qint8)
        for value, why in [
            (torch.eye(2).to_sparse(), "is a tensor of layout torch.sparse_coo"),
            (quantized, "is a quantized tensor"),
            (torch.empty(2, device="meta"), "is a tensor on the meta device"),
            (torch.nn.Linear(1, 1), r"is of type torch\.nn\.modules\.linear\.Linear, .*state_dict\(\)"),
            (torch.optim.SGD([torch.ones(1, requires_grad=True)]), r"SGD.*state_dict\(\)"),
        ]:
            with pytest.raises(TypeError, match=r"state\['m'\]\['x'\] " + f".*{why.removeprefix('is ')}"):
                trireme.save_state(tmp_path, {"m": {"x": value}})

    def test_a_resumed_training_equals_an_undisturbed_one(self, tmp_path: Path) -> None:
        import torch

        def make() -> tuple[Any, Any, Any]:
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
            return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

        def step(model: Any, optimizer: Any, schedule: Any) -> Any:
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.item()

        one = make()
        for _ in range(3):
            step(*one)
        state = {"parts": [part.state_dict() for part in one], "rng": torch.get_rng_state()}
        trireme.save_state(tmp_path, state)
        expected = [step(*one) for _ in range(3)]
        two = make()
        loaded = trireme.load_state(tmp_path)
        for part, its in zip(two, loaded["parts"], strict=True):
            part.load_state_dict(its)
        torch.set_rng_state(loaded["rng"])
        assert [step(*two) for _ in range(3)] == expected

    def test_the_safetensors_package_reads_ours_and_we_read_its(self, tmp_path: Path) -> None:
        import torch

        safetensors = pytest.importorskip("safetensors.torch")
        names = ["float32", "bfloat16", "int64", "bool", "uint16", "float8_e5m2", "complex64"]
        tensors = {name: (torch.arange(6).reshape(2, 3) % 2).to(getattr(torch, name)) for name in names}
        tensors |= {"scalar": torch.tensor(3), "empty": torch.empty(0, 2), "odd": torch.arange(3, dtype=torch.uint8)}
        trireme.save_state(tmp_path / "ours", {"model": tensors})
        read = safetensors.load_file(tmp_path / "ours/state.safetensors")
        assert set(read) == {f"model/{name}" for name in tensors}
        for name, tensor in tensors.items():
            self.same(tensor, read[f"model/{name}"])
        safetensors.save_file(tensors, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
        for loaded in (trireme.load_state(tmp_path / "theirs.safetensors", mmap=mmap) for mmap in (True, False)):
            assert set(loaded) == set(tensors)
            for name, tensor in tensors.items():
                self.same(tensor, loaded[name])

    def test_a_cpp_program_loads_ours_and_we_load_its(self, tmp_path: Path) -> None:
        import torch

        program = BUILD / "examples/cpp/example_state"
        if not program.exists():
            pytest.skip(f"{program} is not built: run `make build` first")
        optimizer_state = {"state": {0: {"step": torch.tensor(5.0), "avg": torch.randn(3).bfloat16()}}}
        state = {"plain": PLAIN, "model": {"weight": torch.randn(2, 4)}, "optimizer": optimizer_state, "epoch": 5}
        trireme.save_state(tmp_path / "ours", state)
        done = subprocess.run(
            [program, tmp_path / "ours", tmp_path / "its"], capture_output=True, text=True, check=True
        )
        assert "model/weight: F32[2, 4]\n" in done.stdout
        loaded = trireme.load_state(tmp_path / "its")
        self.same(state["model"]["weight"] / 2, loaded["model"]["weight"])
        for name, tensor in optimizer_state["state"][0].items():
            self.same(tensor, loaded["optimizer"]["state"][0][name])
        assert (loaded["epoch"], loaded["mean"].tolist()) == (6, [0.25, 0.75])
        assert repr(loaded["plain"]) == repr(PLAIN)

    def test_many_tensors(self, tmp_path: Path) -> None:
        import torch

        state = {f"layer.{i}": torch.full((2,), i) for i in range(5000)}
        loaded = around(tmp_path, state)
        assert list(loaded) == list(state)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())

    def test_loaded_tensors_outlive_what_they_came_from(self, tmp_path: Path) -> None:
        import gc

        import torch

        tensor = around(tmp_path, {"a": [torch.arange(100_000)]})["a"][0]
        for file in (tmp_path / "state").iterdir():
            file.unlink()
        gc.collect()
        assert tensor.sum() == 100_000 * 99_999 // 2


def test_without_the_part_of_rank_0_the_lowest_one_is_taken(tmp_path: Path) -> None:
    """A checkpoint is committed without a rank that was preempted before it could report."""
    for rank in (2, 1):
        trireme.save_state(tmp_path / f"rank_{rank}", {"rank": rank})
    assert trireme.load_state(tmp_path) == {"rank": 1}
    with pytest.raises(FileNotFoundError, match="no state of rank 0"):
        trireme.load_state(tmp_path, rank=0)
