"""Generates the table of names in docs/ray_compat.md from the tables of trireme.compat.ray.

python tools/generate_ray_compat_page.py            write it
python tools/generate_ray_compat_page.py --check    exit with 1 if it is stale
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trireme.compat.ray._names import Module
from trireme.compat.ray._table import MODULES

PAGE = Path(__file__).resolve().parent.parent / "docs/ray_compat.md"
HEAD = "## Every name\n"


def rows() -> Iterator[str]:
    yield "| module of Ray | same | adapted |\n|---|---|---|"
    for name, module in packages():
        if not module.refused and module.names:
            yield f"| `{name}` | {_served(module, 'same')} | {_served(module, 'adapted')} |"
    yield "\nRefused names, with what to use instead:\n\n| name | |\n|---|---|"
    for name, module in packages():
        if module.refused:
            yield f"| `{name}` (module) | {module.advice} |"
        for advice, names in _refused(module).items():
            yield f"| `{name}`: {', '.join(f'`{each}`' for each in names)} | {advice} |"


def packages() -> list[tuple[str, Module]]:
    """Without the files of packages, which have the names of their package."""
    return [
        (name, module) for name, module in sorted(MODULES.items()) if MODULES.get(name.rpartition(".")[0]) is not module
    ]


def _served(module: Module, how: str) -> str:
    return ", ".join(f"`{name}`" for name, entry in sorted(module.names.items()) if entry.how == how)


def _refused(module: Module) -> dict[str, list[str]]:
    by_advice: dict[str, list[str]] = {}
    for name, entry in sorted(module.names.items()):
        if entry.how == "refused":
            by_advice.setdefault(entry.note, []).append(name)
    return by_advice


def main() -> int:
    text = PAGE.read_text()
    made = text[: text.index(HEAD)] + HEAD + "\n" + INTRODUCTION + "\n" + "\n".join(rows()) + "\n"
    if "--check" in sys.argv:
        if made != text:
            print(f"{PAGE.name} is stale: run {Path(__file__).name}")
        return int(made != text)
    PAGE.write_text(made)
    return 0


INTRODUCTION = """\
*Same*: Trireme's own object, with the same meaning. *Adapted*: behaves as in Ray, by an adapter.
`--ray-compat=report` prints what differs. The files of a package, such as `ray.data.preprocessors.scaler`, have the
names of the package.
"""

if __name__ == "__main__":
    sys.exit(main())
