"""The allowed includes between modules. This file is their only definition in code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpp_programs import ROOT

# The modules that a module may include, besides itself and the public headers.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "wire": {"base"},
    "storage": {"base"},
    "checkpoint": {"base", "storage"},
    "data": {"base", "storage"},
    "formats": {"base", "data"},
    "engine": {"base", "wire"},
    "agent": {"base", "wire", "engine", "storage"},
    "control": {"base", "wire", "engine", "checkpoint", "storage"},
    "worker": {"base", "wire", "checkpoint", "storage", "data"},
    "dash": {"base", "storage"},
    "plan": {"base", "storage", "data"},
    "preprocess": {"base", "data"},
}
_CORE = set(ALLOWED)
ALLOWED["api"] = _CORE
ALLOWED["cli"] = _CORE | {"api"}
# Optional libraries that no other module includes.
for _optional in ("torch", "dataset", "boosting"):
    ALLOWED[_optional] = {"base", "data", "formats", "worker", "checkpoint"}
ALLOWED["dataset"].add("plan")

# The bindings combine modules as the API does, but do not use engines.
BINDINGS = {"base", "wire", "storage", "checkpoint", "data", "formats", "preprocess", "control", "worker", "api"}

# Allowed includes of the optional libraries' public headers, besides public headers and std.
PUBLIC_MAY_ALSO = {"torch": ("torch/", "ATen/", "c10/"), "arrow": ("arrow/",), "boosting": ()}
# The module that implements a folder of public headers, if it has another name.
IMPLEMENTED_IN = {"arrow": "dataset"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def includes_of(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def wrong_includes(root: Path) -> list[str]:
    """One line per disallowed include."""
    return [*_wrong_in_modules(root), *_wrong_in_public_headers(root), *_wrong_in_bindings(root)]


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cpp"))


def _wrong_in_modules(root: Path) -> list[str]:
    wrong = []
    src = root / "src"
    for path in _sources(src):
        relative = path.relative_to(src)
        module = relative.parts[0]
        if module not in ALLOWED:
            wrong.append(f"src/{relative}: module '{module}' is not in the graph; add it to ALLOWED and DESIGN.md")
            continue
        for name in includes_of(path):
            if name.startswith("trireme/"):
                optional = name.split("/")[1]
                owner = IMPLEMENTED_IN.get(optional, optional)
                if optional in PUBLIC_MAY_ALSO and module != owner:
                    wrong.append(f"src/{relative} includes {name}: only src/{owner} may")
                continue
            # <torch/torch.h> is libtorch, "torch/reducer.h" would be src/torch: count only our own headers.
            other = name.split("/")[0]
            if "/" not in name or not (src / name).exists():
                continue
            if other != module and other not in ALLOWED[module]:
                wrong.append(f"src/{relative} includes {name}: {module} may not include {other}")
    return wrong


def _wrong_in_public_headers(root: Path) -> list[str]:
    wrong = []
    include = root / "include"
    for path in _sources(include):
        relative = path.relative_to(include)
        folder = relative.parts[1] if len(relative.parts) > 2 else ""
        for name in includes_of(path):
            if name.startswith("trireme/"):
                if not (include / name).exists():
                    wrong.append(f"include/{relative} includes {name}, which does not exist")
                elif not folder and name.split("/")[1] in PUBLIC_MAY_ALSO:
                    wrong.append(f"include/{relative} includes {name}: the core may not need an optional library")
            elif ("/" in name or name.endswith(".h")) and not name.startswith(PUBLIC_MAY_ALSO.get(folder, ()) or "\0"):
                wrong.append(f"include/{relative} includes {name}: public headers need only public headers and std")
    return wrong


def _wrong_in_bindings(root: Path) -> list[str]:
    wrong = []
    bindings = root / "python" / "bindings"
    for path in _sources(bindings):
        for name in includes_of(path):
            module = name.split("/")[0]
            if module in ALLOWED and module not in BINDINGS and (root / "src" / name).exists():
                wrong.append(f"{path.relative_to(root)} includes {name}: bindings may not include {module}")
    return wrong


def test_includes_point_one_way() -> None:
    assert wrong_includes(ROOT) == []


def test_there_is_something_to_check() -> None:
    assert len(_sources(ROOT / "src")) > 20
    assert any(name == "base/result.h" for path in _sources(ROOT / "src" / "wire") for name in includes_of(path))


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("src/base/x.h", '#include "wire/frame.h"', "base may not include wire"),
        ("src/control/x.cpp", '#include "worker/session.h"', "control may not include worker"),
        ("src/worker/x.cpp", '  #  include "control/state.h"', "worker may not include control"),
        ("src/engine/x.cpp", "#include <control/state.h>", "engine may not include control"),
        ("src/api/x.cpp", '#include "cli/table.h"', "api may not include cli"),
        ("src/util/x.h", "", "module 'util' is not in the graph"),
        ("src/control/x.cpp", '#include "trireme/torch/torch.h"', "only src/torch may"),
        ("include/trireme/x.h", "#include <fmt/format.h>", "need only public headers and std"),
        ("include/trireme/x.h", '#include "base/result.h"', "need only public headers and std"),
        ("include/trireme/x.h", '#include "trireme/absent.h"', "does not exist"),
        ("include/trireme/x.h", '#include "trireme/torch/torch.h"', "may not need an optional library"),
        ("python/bindings/x.cpp", '#include "cli/table.h"', "bindings may not include cli"),
    ],
)
def test_a_wrong_include_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    for name in ("wire/frame.h", "worker/session.h", "control/state.h", "cli/table.h", "base/result.h"):
        _write(tmp_path / "src" / name, "")
    _write(tmp_path / "include/trireme/torch/torch.h", "#include <torch/torch.h>\n#include <vector>")
    _write(tmp_path / "include/trireme/value.h", "#include <string>")
    assert wrong_includes(tmp_path) == []
    _write(tmp_path / file, f"#pragma once\n{text}\n")
    found = wrong_includes(tmp_path)
    assert len(found) == 1, found
    assert complaint in found[0]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
