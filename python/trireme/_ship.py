"""Sends the training function to the workers with cloudpickle; errors name the object that cannot be pickled."""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

_MAX_SOURCES = 1 << 20  # characters; the latest cells first

Argument = tuple[str, Any]  # user-visible name, object


def describe(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def call_arguments(function: Callable[..., Any], config: dict[str, Any] | None) -> tuple[Any, ...]:
    """The arguments of the function: the configuration if it has a parameter, else none."""
    if not callable(function):
        raise TypeError(f"train_loop_per_worker must be a function, got {type(function).__name__}: {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ValueError(f"{describe(function)}() is a coroutine or generator; use a plain function")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some C functions have no signature
        return () if config is None else (config,)
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p for p in named if p.default is p.empty]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        raise ValueError(
            f"{describe(function)}({', '.join(str(p) for p in parameters)}) has {len(required)} required parameters: "
            f"{', '.join(p.name for p in required)}. A training function has at most one: the train_loop_config "
            "dict. Put the values into train_loop_config, or give the other parameters defaults"
        )
    if required:
        return (config or {},)
    takes_one = any(p.kind is not p.KEYWORD_ONLY for p in named)
    return (config,) if takes_one and config is not None else ()


def pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], extras: dict[str, Any], sys_path: list[str]
) -> bytes:
    """extras: further objects that the receiver needs, by user-visible name."""
    try:
        shipped = dumps((function, arguments, extras))
    except Exception as error:
        named = [(describe(function), function), ("train_loop_config", arguments), *extras.items()]
        raise TypeError(_explain(named, error)) from error
    # In a separate pickle: loading the inner one imports modules from these folders.
    return pickle.dumps((sys_path, sys.argv, _typed_sources(), shipped))


def dumps(value: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """cloudpickle, for functions of users. buffer_callback: gets large buffers in place of the pickle, as in pickle."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            # Modules of a class of their own. cloudpickle adds torch.ops to every function that uses torch and an
            # attribute named ops, whatever it belongs to, and cannot pickle it.
            special = isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType
            if special and sys.modules.get(name := str(obj.__name__)) is obj:
                return importlib.import_module, (name,)
            return super().reducer_override(obj)

    with io.BytesIO() as file:
        Pickler(file, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


# Folders and files with code on the driver's machine -> where they are on this one. Empty on the driver's machine.
_code: dict[str, str] = {}


def here(path: str) -> str:
    """Where a path of the driver's machine is on this one, if it is in code that was sent to this node."""
    for there, copy in _code.items():
        if path == there or path.startswith(there + os.sep):
            return copy + path[len(there) :]
    return path


def unpack(
    payload: bytes, code: dict[str, str] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """code: see _code."""
    sys_path, sys.argv[:], sources, shipped = pickle.loads(payload)
    _code.clear()
    _code.update({there: copy for there, copy in (code or {}).items() if there != copy})
    # `import name` looks for sent packages and modules in the folders that contain their copies.
    sent = [os.path.dirname(copy) for there, copy in _code.items() if os.path.dirname(there) in sys_path]
    sys.path[:] = list(dict.fromkeys([*sent, *map(here, sys_path)])) if _code else sys_path
    linecache.cache.update(sources)
    importlib.invalidate_caches()  # the warm process may have cached these folders before the user added a file
    function, arguments, extras = pickle.loads(shipped)
    return function, arguments, extras


def _typed_sources() -> dict[str, Any]:
    """Source lines that are not in a file, such as notebook cells, for the tracebacks of workers."""
    sources: dict[str, Any] = {}
    room = _MAX_SOURCES
    for name, entry in reversed(linecache.cache.items()):
        if len(entry) != 4 or entry[1] is not None:  # from a file, or not read yet
            continue
        if int(entry[0]) <= room:
            room -= int(entry[0])
            sources[name] = entry
    return sources


def absolute_sys_path() -> list[str]:
    """The driver's sys.path for a process in another folder: '' and relative entries depend on the current folder."""
    return list(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))


def _explain(candidates: list[Argument], error: Exception) -> str:
    for name, value in candidates:
        if found := _find_unpicklable(name, value):
            (first, *rest), culprit, reason = found
            trail = f" ({' -> '.join([first, *rest])})" if len(rest) > 1 else ""
            what = f"{rest[-1]} of {first}" if rest else first
            return (
                f"cannot send {candidates[0][0]} to the workers: {what}, a {type(culprit).__name__}, cannot be "
                f"pickled{trail}: {reason}. Create it inside the training function, or send the values to create it "
                "from (a path, a URL, a number) in train_loop_config"
            )
    return f"cannot send {candidates[0][0]} to the workers: {error}"


def _find_unpicklable(name: str, value: Any) -> tuple[list[str], Any, str] | None:
    """The names from `value` down to the innermost object that cannot be pickled."""
    seen: set[int] = set()

    def search(name: str, value: Any, depth: int) -> tuple[list[str], Any, str] | None:
        if id(value) in seen:
            return None
        seen.add(id(value))
        reason = _why_unpicklable(value)
        if reason is None:
            return None
        for part_name, part in _parts(value) if depth < 16 else ():
            if found := search(part_name, part, depth + 1):
                return [name, *found[0]], found[1], found[2]
        return [name], value, reason

    return search(name, value, 0)


def _why_unpicklable(value: Any) -> str | None:

    try:
        dumps(value)
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _parts(value: Any) -> Iterator[Argument]:
    if isinstance(value, types.MethodType):
        yield f"'self' of {describe(value)}", value.__self__
        yield describe(value.__func__), value.__func__
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, functools.partial):
        yield describe(value.func), value.func
        yield from ((f"argument {i}", part) for i, part in enumerate(value.args))
        yield from ((f"argument '{key}'", part) for key, part in value.keywords.items())
    elif isinstance(value, dict):
        yield from ((f"key {key!r}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"element {i}", part) for i, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f"element {part!r}", part) for part in value)
    elif isinstance(value, type):
        yield from ((f"class attribute '{key}'", part) for key, part in vars(value).items() if not key.startswith("__"))
    else:
        if type(value).__module__ == "__main__":
            yield f"class {type(value).__name__}", type(value)
        yield from ((f"attribute '{key}'", part) for key, part in getattr(value, "__dict__", {}).items())


def _parts_of_function(function: types.FunctionType) -> Iterator[Argument]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"closure variable '{name}'", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__ and not hasattr(builtins, name):
            yield f"global variable '{name}'", function.__globals__[name]
    for index, default in enumerate(function.__defaults__ or ()):
        yield f"default value {index}", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f"default value of '{name}'", default


def _global_names(code: types.CodeType) -> list[str]:
    """Names that the function may look up, including nested functions."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _global_names(constant)
    return list(dict.fromkeys(names))
