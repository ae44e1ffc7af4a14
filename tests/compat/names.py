"""Compares the public names and parameters of Ray with the tables of trireme.compat.ray.

python tests/compat/names.py record    writes those of the installed Ray to recordings/names.json: a line for a module
python tests/compat/names.py check     what of them compatibility mode does not have, a line each

`record` imports all of Ray. It needs the environment of the frameworks (make frameworks), and RAY_AUTH_MODE=disabled.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

CORE = [
    "ray",
    "ray.actor",
    "ray.exceptions",
    "ray.runtime_context",
    "ray.runtime_env",
    "ray.util",
    "ray.util.accelerators",
    "ray.util.actor_pool",
    "ray.util.annotations",
    "ray.util.metrics",
    "ray.util.placement_group",
    "ray.util.queue",
    "ray.util.scheduling_strategies",
]
PACKAGES = ["ray.train", "ray.air", "ray.data", "ray.tune"]
# Ray's own machinery, which it annotates as if it were for users.
INTERNAL = (
    "ray.data.stats",
    "ray.data.util.",
    "ray.tune.cli.",
    "ray.tune.execution.tune_controller",
    "ray.tune.experimental.",
    "ray.tune.impl.",
    "ray.tune.resources",
)
# Classes that only Ray makes objects of.
NO_CONSTRUCTOR = (
    "ray.actor.",
    "ray.data.DataContext",
    "ray.data.Dataset",
    "ray.data.block.",
    "ray.data.context.",
    "ray.data.dataset.",
    "ray.data.grouped_data.",
    "ray.exceptions.",
    "ray.remote_function.",
    "ray.runtime_context.",
    "ray.train.v2.api.context.",
    "ray.tune.ResultGrid",
    "ray.tune.experiment.",
    "ray.tune.result_grid.",
    "ray.util.placement_group.PlacementGroup",
)
NAMES = Path(__file__).resolve().parent / "recordings" / "names.json"


def main(words: list[str]) -> int:
    if words == ["record"]:
        lines = [f" {json.dumps(module)}: {json.dumps(names)}" for module, names in sorted(listed().items())]
        NAMES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    problems = checked(json.loads(NAMES.read_text()))
    print("\n".join(problems))
    return int(bool(problems))


def listed() -> dict[str, dict[str, list[str] | None]]:
    """The parameters of every public name, by module."""
    warnings.simplefilter("ignore")
    names = [*CORE]
    for package in PACKAGES:
        module = importlib.import_module(package)
        names.append(package)
        found = pkgutil.walk_packages(module.__path__, f"{package}.", onerror=lambda name: None)
        names += [each.name for each in found if not _is_private(each.name)]
    return {name: public for name in names if (public := _public(name))}


def _is_private(name: str) -> bool:
    return any(part.startswith("_") or part in ("examples", "tests", "test_utils") for part in name.split("."))


def _public(name: str) -> dict[str, list[str] | None]:
    try:
        module = importlib.import_module(name)
    except Exception:  # of a package that is not installed
        return {}
    names = getattr(module, "__all__", None) or [
        each for each, value in vars(module).items() if _is_annotated(value, module)
    ]
    found = {}
    for each in names:
        try:
            found[each] = _parameters(getattr(module, each))
        except Exception:  # Ray has removed it
            continue
    return {each: parameters for each, parameters in found.items() if not each.startswith("_")}


def _is_annotated(value: Any, module: ModuleType) -> bool:
    """Ray marks what users may use."""
    kind = getattr(value, "_annotated_type", None)
    own = getattr(value, "_annotated", None) == getattr(value, "__name__", "")
    return own and getattr(kind, "value", "") == "PublicAPI" and value.__module__ == module.__name__


def _parameters(value: Any) -> list[str] | None:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def checked(theirs: dict[str, dict[str, list[str] | None]]) -> list[str]:
    import trireme.compat.ray  # noqa: F401
    from trireme.compat.ray._table import MODULES

    problems = []
    for module, names in theirs.items():
        if module.startswith("ray.data.datasource."):
            continue  # the names of its package
        parts = module.split(".")
        above = [MODULES.get(".".join(parts[:end])) for end in range(1, len(parts) + 1)]
        if any(entry is not None and entry.refused for entry in above) or module.startswith(INTERNAL):
            continue
        if above[-1] is None:
            problems.append(f"{module}: no such module ({', '.join(names)})")
            continue
        for name, parameters in names.items():
            entry = above[-1].names.get(name)
            if entry is None and f"{module}.{name}" not in MODULES:
                problems.append(f"{module}.{name}: no such name")
            elif entry is not None and entry.how != "refused" and parameters:
                problems += _lacking(module, name, parameters)
    return problems


def _lacking(module: str, name: str, parameters: list[str]) -> list[str]:
    full_name = f"{module}.{name}"
    try:
        ours = getattr(importlib.import_module(module), name)
        signature = inspect.signature(ours)
    except (ImportError, TypeError, ValueError):  # no framework here, or nothing to call
        return []
    if inspect.isclass(ours) and full_name.startswith(NO_CONSTRUCTOR):
        return []
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        return []  # checked when it is called
    lacking = [each for each in parameters if each not in signature.parameters and not each.startswith("_")]
    return [f"{full_name}({each}=...): no such parameter" for each in lacking]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
