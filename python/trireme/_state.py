"""Training states as files that Python and C++ can read: trireme.save_state() and trireme.load_state().

The core walks the tree and writes the files. This module converts types that the core does not know, mainly those of
torch and numpy. Neither is imported before it is needed.
"""

from __future__ import annotations

import enum
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any, cast

from trireme import _core, _device_copy
from trireme._checkpoint import Checkpoint
from trireme._parts import load_part, ranks_in
from trireme._sharded_tensors import Box, Part, ShardedTensor, assembled, has_shards, merged


def save_state(path: str | os.PathLike[str], state: dict[Any, Any], *, allow_pickle: bool = False) -> None:
    """Write a state into a directory, durably. Replaces an existing state.

    A state is a dict of dicts, lists, tuples, numbers, text, bytes, tensors and arrays, such as the state_dict() of
    models, optimizers and schedulers, and the states of random number generators. Any other value is pickled if
    `allow_pickle` is True; otherwise an error names its place in the state. Tensors on other devices are copied to host
    memory.
    """
    _core.save_state(os.path.expanduser(os.fspath(path)), state, allow_pickle)


def load_state(
    path: str | os.PathLike[str] | Checkpoint, *, allow_pickle: bool = False, mmap: bool = True, rank: int | None = None
) -> dict[Any, Any]:
    """Read a state written by save_state(), Checkpoint.from_dict() or a C++ program, or any .safetensors file.

    Files of a checkpoint are compared with its checksums; a damaged file raises an error that names it. Tensors stored
    in parts (trireme.torch.save_sharded) are returned complete.

    allow_pickle: only for files that you trust; unpickling can run arbitrary code.
    mmap: tensors are read on first access; writing to them never changes the file.
    rank: the rank whose part is loaded if several ranks wrote the checkpoint; by default this worker's rank.
    """
    if isinstance(path, Checkpoint):
        if path._state is not None:
            return path.to_dict()
        if _in_memory(path._memory, rank):
            state = _load_own(path.path, allow_pickle, mmap, rank, path._memory)[1]
            if not has_shards(state):
                print(f"rank {_own_rank()} loads {os.path.basename(path.path)} from memory", flush=True)
                return state
        with path.as_directory() as folder:
            return _load(folder, allow_pickle, mmap, rank, path._memory)
    return _load(os.path.abspath(os.path.expanduser(os.fspath(path))), allow_pickle, mmap, rank, {})


def encode(state: dict[Any, Any], allow_pickle: bool = False) -> _core.State:
    """The state in the core's representation; its tensors are views, not copies."""
    return _core.encode_state(state, allow_pickle)


def _in_memory(memory: Mapping[str, str], rank: int | None) -> bool:
    wanted = _own_rank() if rank is None else rank
    return f"rank_{wanted}/state.json" in memory or (wanted == 0 and "state.json" in memory)


def _load(folder: str, allow_pickle: bool, mmap: bool, rank: int | None, memory: Mapping[str, str]) -> dict[Any, Any]:
    chosen, state = _load_own(folder, allow_pickle, mmap, rank, memory)
    if not has_shards(state):
        return state
    others = [other for other in ranks_in(folder, memory) if other != chosen]
    trees = [state, *(load_part(folder, other, memory, allow_pickle=allow_pickle, mmap=mmap) for other in others)]
    return cast("dict[Any, Any]", assembled(merged(trees), _empty))


def _load_own(
    folder: str, allow_pickle: bool, mmap: bool, rank: int | None, memory: Mapping[str, str]
) -> tuple[int, dict[Any, Any]]:
    chosen = _rank_of(folder, rank, memory)
    return chosen, load_part(folder, chosen, memory, allow_pickle=allow_pickle, mmap=mmap)


def _rank_of(folder: str, rank: int | None, memory: Mapping[str, str]) -> int:
    """The rank whose part is loaded. By default this worker's, or else the lowest rank's in the checkpoint. The part of
    rank 0 is at the top level."""
    wanted = _own_rank() if rank is None else rank
    part = f"rank_{wanted}"
    if wanted > 0 and (f"{part}/state.json" in memory or os.path.isdir(os.path.join(folder, part))):
        return wanted
    if rank is not None and rank != 0:
        raise FileNotFoundError(f"{folder} has no state of rank {rank}")
    others = [other for other in ranks_in(folder, memory) if other > 0]
    if not others or "state.json" in memory or os.path.exists(os.path.join(folder, "state.json")):
        return 0
    # A checkpoint that was committed without rank 0 because rank 0 was preempted.
    if rank == 0:
        raise FileNotFoundError(f"{folder} has no state of rank 0")
    return others[0]


def _own_rank() -> int:
    from trireme import _session

    return _session._current.context.get_world_rank() if _session._current else 0


class Refused(Exception):
    """The reason why a value cannot be stored or loaded. The core prepends the place and raises a TypeError."""


# Type names of safetensors -> torch and numpy. Types that numpy lacks need torch.
_TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_FROM_TORCH = {f"torch.{theirs}": ours for ours, theirs in _TORCH.items()}
_FROM_NUMPY = {theirs: ours for ours, theirs in _TORCH.items() if theirs != "bfloat16" and "float8" not in theirs}


def encode_object(value: Any, allow_pickle: bool) -> Any:
    """Returns a _core.Tensor, (mark, content), or (None, replacement)."""
    if isinstance(value, ShardedTensor):
        offsets, tensors = [list(part.box.offset) for part in value.parts], [part.tensor for part in value.parts]
        return "$shard", {"shape": list(value.shape), "dtype": value.dtype, "offsets": offsets, "parts": tensors}
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    # Not Parameter: its metaclass makes isinstance() slow, and a Parameter is a Tensor anyway.
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_torch(torch, value)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _encode_numpy(numpy, value, "$numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _encode_numpy(numpy, numpy.asarray(value), "$numpy_scalar")
    if torch is not None:
        if isinstance(value, torch.Size):
            return "$size", list(value)
        if isinstance(value, torch.dtype):
            return "$dtype", str(value)
        if isinstance(value, torch.device):
            return "$device", str(value)
    if numpy is not None and isinstance(value, numpy.dtype) and value.kind in "biufcmMSU":
        return "$numpy_dtype", value.str
    return _encode_python(value, allow_pickle)


def _encode_python(value: Any, allow_pickle: bool) -> Any:
    if not isinstance(value, enum.Enum):
        if isinstance(value, int):
            # Hexadecimal beyond about 4,000 digits, where Python refuses to convert to decimal.
            return (
                ("$int", str(value) if value.bit_length() < 13_000 else hex(value))
                if _is_long(value)
                else (None, int(value))
            )
        if isinstance(value, complex):
            return "$complex", [value.real, value.imag]
        if isinstance(value, str):
            return None, str.__str__(value)
        if isinstance(value, bytearray):
            return None, bytes(value)
        plain: Any
        for plain in (float, bytes, list):
            if isinstance(value, plain):
                return None, plain(value)
        if isinstance(value, dict):
            return None, dict(value)
    if allow_pickle:
        return "$pickle", _encode_bytes(_pickled(value))
    raise Refused(
        f"is of type {_name_of(type(value))}, which cannot be stored without pickle: store its state_dict() or its "
        "numbers and text, or pass allow_pickle=True"
    )


def _is_long(value: int) -> bool:
    return not -(2**63) <= value < 2**63


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # the value's own code may raise anything
        raise Refused(f"is of type {_name_of(type(value))}, which cannot be pickled: {error}") from error


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _encode_bytes(data: bytes) -> _core.Tensor:
    # Only ctypes gives the address of a bytes object; numpy may not be installed.
    import ctypes

    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return _core.Tensor(address, "U8", [len(data)], data)


def _encode_torch(torch: Any, tensor: Any) -> Any:
    if tensor.layout is not torch.strided:
        raise Refused(f"is a tensor of layout {tensor.layout}, which is not dense: store to_dense(), or its components")
    if tensor.is_quantized:
        raise Refused("is a quantized tensor: store int_repr(), q_scale() and q_zero_point()")
    if tensor.is_meta:
        raise Refused("is a tensor on the meta device, which has no data: materialize the model first")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and _is_wrapper(torch, tensor):
        raise Refused(
            f"is of type {_name_of(type(tensor))}, which wraps other tensors: store the plain tensors in it "
            "(for a DTensor: trireme.torch.save_sharded() on every rank, or full_tensor())"
        )
    name = _FROM_TORCH.get(str(tensor.dtype))
    if not tensor.is_cpu and name is not None and _device_copy.has_streams(tensor.device):
        return _core.Tensor.on_device(name, tensor.shape, tensor.detach().resolve_conj().resolve_neg())
    if not tensor.is_cpu or tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if name is None:
        raw = tensor.detach().unsqueeze(-1).view(torch.uint8)
        return "$torch", {"bytes": _torch_view(raw, "U8"), "dtype": str(tensor.dtype)}
    return _torch_view(tensor, name)


def _is_wrapper(torch: Any, tensor: Any) -> bool:
    return bool(torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor))


def _torch_view(tensor: Any, name: str) -> _core.Tensor:
    return _core.Tensor(tensor.data_ptr(), name, tensor.shape, tensor)


def _encode_numpy(numpy: Any, array: Any, mark: str) -> Any:
    if array.dtype.kind not in "biufcmMSU" or isinstance(array, numpy.ma.MaskedArray):
        kind = "a masked array" if isinstance(array, numpy.ma.MaskedArray) else f"an array of dtype {array.dtype}"
        raise Refused(f"is {kind}, which cannot be stored: store arrays of numbers instead")
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    plain = numpy.asarray(array, order="C")
    name = _FROM_NUMPY.get(plain.dtype.name)
    if name is not None:
        return mark, _numpy_view(plain, name)
    if plain.dtype.itemsize == 0:
        raise Refused("is an array of empty strings, which has no bytes: store a list")
    raw = plain.reshape(*plain.shape, 1).view(numpy.uint8)
    return mark, {"bytes": _numpy_view(raw, "U8"), "dtype": plain.dtype.str}


def _numpy_view(array: Any, name: str) -> _core.Tensor:
    return _core.Tensor(array.__array_interface__["data"][0], name, list(array.shape), array)


def decode_tensor(tensor: _core.Tensor) -> Any:
    """A torch tensor, or a numpy array if torch is not installed."""
    torch = _import("torch")
    if torch is not None:
        return _to_torch(torch, tensor)
    if _TORCH[tensor.dtype] not in _FROM_NUMPY:
        raise Refused(f"is a tensor of type {tensor.dtype}, which only torch has: pip install trireme[torch]")
    if _import("numpy") is None:
        raise Refused("is a tensor, and neither torch nor numpy is installed: pip install trireme[torch]")
    return _to_numpy(tensor)


def decode_mark(mark: str, content: Any, allow_pickle: bool) -> Any:
    try:
        if mark in ("$numpy", "$numpy_scalar"):
            array = _decode_numpy(content)
            return array if mark == "$numpy" else array[()]
        if mark == "$torch":
            return _decode_torch(content)
        if mark == "$shard":
            return _decode_shards(content)
        if mark == "$blob":
            return bytes(content)
        if mark == "$int":
            return int(content, 0)
        if mark == "$complex":
            return complex(*content)
        if mark in ("$size", "$dtype", "$device"):
            return _decode_torch_object(mark, content)
        if mark == "$numpy_dtype":
            return _needed("numpy", "a numpy dtype").dtype(content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Refused(f"is damaged: {mark} {content!r}: {error}") from error
    if mark == "$pickle":
        if not allow_pickle:
            raise Refused(
                "is a pickle, which can run arbitrary code when it is loaded: pass allow_pickle=True if you trust "
                "the file"
            )
        return pickle.loads(content)
    raise Refused(f"is marked {mark}, which this version of trireme does not support: use a newer version")


def _decode_shards(content: Any) -> ShardedTensor:
    pairs = zip(content["offsets"], content["parts"], strict=True)
    parts = [Part(Box(tuple(offset), tuple(tensor.shape)), tensor) for offset, tensor in pairs]
    shape = tuple(content["shape"])
    if any(len(part.box.offset) != len(shape) or len(part.box.shape) != len(shape) for part in parts):
        raise ValueError(f"a part does not have the number of dimensions of {shape}")
    return ShardedTensor(shape, content["dtype"], parts)


def _decode_numpy(content: Any) -> Any:
    numpy = _needed("numpy", "a numpy array")
    if isinstance(content, dict):
        dtype = numpy.dtype(content["dtype"])
        shape = content["bytes"].shape[:-1]
        return numpy.frombuffer(content["bytes"], dtype).reshape(shape) if 0 not in shape else numpy.empty(shape, dtype)
    return _to_numpy(content)


def _decode_torch(content: Any) -> Any:
    torch = _needed("torch", "a torch tensor")
    raw = _to_torch(torch, content["bytes"])
    return raw.view(_torch_dtype(torch, content["dtype"])).squeeze(-1)


def _decode_torch_object(mark: str, content: Any) -> Any:
    torch = _needed("torch", f"torch's {mark[1:]}")
    if mark == "$size":
        return torch.Size(content)
    return torch.device(content) if mark == "$device" else _torch_dtype(torch, content)


def _torch_dtype(torch: Any, name: str) -> Any:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this torch ({torch.__version__}) has no {name}")
    return dtype


def _to_torch(torch: Any, tensor: _core.Tensor) -> Any:
    dtype = _torch_dtype(torch, _TORCH[tensor.dtype])
    if tensor.nbytes == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(tensor, dtype=dtype).reshape(tensor.shape)


def _to_numpy(tensor: _core.Tensor) -> Any:
    numpy = _needed("numpy", "a numpy array")
    if tensor.nbytes == 0:
        return numpy.empty(tensor.shape, _TORCH[tensor.dtype])
    return numpy.frombuffer(tensor, _TORCH[tensor.dtype]).reshape(tensor.shape)


def dtype_name(dtype: Any) -> str:
    """The safetensors name of a torch.dtype, or torch's name if safetensors has none."""
    return _FROM_TORCH.get(str(dtype), str(dtype))


def plain_dtype(name: str) -> str:
    """The name in torch and numpy."""
    return _TORCH.get(name, name).removeprefix("torch.")


def _empty(shards: ShardedTensor) -> Any:
    """The tensor that the parts are copied into."""
    torch = _import("torch")
    if torch is not None:
        return torch.empty(shards.shape, dtype=_torch_dtype(torch, plain_dtype(shards.dtype)))
    return _needed("numpy", "a tensor").empty(shards.shape, _TORCH[shards.dtype])


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


def _needed(name: str, what: str) -> Any:
    module = _import(name)
    if module is None:
        raise Refused(f"is {what}, and {name} is not installed: pip install trireme[torch]")
    return module
