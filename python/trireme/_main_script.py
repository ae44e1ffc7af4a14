"""Runs a script or module in a worker as `python script.py` or `python -m module` does."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

from trireme._ship import here


def run_as_main(config: dict[str, Any]) -> None:
    """The training function of `trireme launch`. Can run again in the same process: `__main__` is replaced.

    script: the path, or the module name if is_module; arguments: the script's arguments; folder: the user's working
    directory.
    """
    folder, script = here(config["folder"]), config["script"]
    if not config["is_module"]:
        script = here(os.path.join(config["folder"], script))
    # Without a copy of the folder, the script runs in the folder that the agent has chosen.
    if os.path.isdir(folder):
        os.chdir(folder)
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    # pickle, multiprocessing and inspect look up the user's classes there.
    sys.modules["__main__"] = main
    code = _load_module(script, main) if config["is_module"] else _load_script(script, main)
    assert main.__file__ is not None
    sys.argv[:] = [main.__file__ if config["is_module"] else config["script"], *config["arguments"]]
    try:
        exec(code, vars(main))
    except SystemExit as end:
        if end.code is None or end.code == 0:
            return
        what = f"the script ended with exit code {end.code}" if isinstance(end.code, int) else str(end.code)
        raise SystemExit(what).with_traceback(end.__traceback__) from None


def _load_script(path: str, main: types.ModuleType) -> types.CodeType:
    main.__file__ = os.path.abspath(path)
    with io.open_code(main.__file__) as file:
        return compile(file.read(), main.__file__, "exec", dont_inherit=True)


def _load_module(name: str, main: types.ModuleType) -> types.CodeType:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code: types.CodeType | None = _code_of(spec) if spec else None
    if spec is None or code is None:
        raise ModuleNotFoundError(f"no module named '{name}' that can be run", name=name)
    main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
    main.__file__ = spec.origin
    return code


def _code_of(spec: ModuleSpec) -> types.CodeType | None:
    get_code = getattr(spec.loader, "get_code", None)
    code: types.CodeType | None = get_code(spec.name) if get_code else None
    return code
