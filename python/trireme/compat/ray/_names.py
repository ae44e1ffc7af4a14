"""What the tables of this package are made of: how each name of Ray is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

How = Literal["same", "adapted", "refused"]
RAY_VERSION = "2.60.0"  # whose names and behaviour the tables describe


@dataclass(frozen=True)
class Name:
    """One name of a module of Ray.

    target: "module:attribute" of the replacement, or "module" if the replacement is a module.
    note: what differs, or for a refused name what to use instead.
    v1: only the first version of Ray Train has it, so that a script which uses it was written for that version.
    """

    how: How
    target: str = ""
    note: str = ""
    v1: bool = False


@dataclass(frozen=True)
class Module:
    """A module of Ray. A refused module has advice and no names."""

    names: Mapping[str, Name]
    advice: str = ""
    v1: bool = False

    @property
    def refused(self) -> bool:
        return bool(self.advice)


def same(module: str, names: str) -> dict[str, Name]:
    """Names, separated by spaces, that Trireme has with the same meaning. "Ray=Ours" if ours has another name."""
    return {ray: Name("same", f"{module}:{ours}") for ray, ours in _pairs(names)}


def adapted(module: str, names: str, note: str, *, v1: bool = False) -> dict[str, Name]:
    """Names that behave as in Ray, by an adapter."""
    return {ray: Name("adapted", f"{module}:{ours}", note, v1) for ray, ours in _pairs(names)}


def refused(names: str, advice: str) -> dict[str, Name]:
    return {ray: Name("refused", note=advice) for ray, _ in _pairs(names)}


def module(*groups: Mapping[str, Name], v1: bool = False, v1_names: bool = False) -> Module:
    """v1: a script that imports it was written for the first version; v1_names: one that uses any name of it."""
    names = {name: entry for group in groups for name, entry in group.items()}
    if v1_names:
        names = {name: replace(entry, v1=True) for name, entry in names.items()}
    return Module(names, v1=v1)


def refused_module(advice: str) -> Module:
    return Module({}, advice)


def inside(parent: str, entry: Module, names: str) -> dict[str, Module]:
    """The files of a package, for scripts that import from them: each has all names of the package."""
    return {f"{parent}.{name}": entry for name in names.split()}


def _pairs(names: str) -> list[tuple[str, str]]:
    words = [word.partition("=") for word in names.split()]
    return [(ray, ours or ray) for ray, _, ours in words]
