"""Code that protobuf has generated fails in an import if the package needs another version of protobuf."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version

_GENERATED = "_pb2.py"
_REQUIREMENT = re.compile(r"protobuf\b\s*(?P<versions>\(?[^;]*)(?P<marker>;.*)?$")
_REGISTERED_TWICE = re.compile(r"duplicate (?:file name|symbol) '?(?P<name>[^\s']+)")


def explain_clash(error: BaseException) -> str:
    """What to install; empty if the error has another cause. The import of generated code has no other reason to
    fail."""
    module = _generated_module(error)
    if not module:
        return ""
    package = _distribution_of(module)
    found = f"{package} cannot be imported with protobuf {_version_of('protobuf')}: {error} (in {module})"
    if twice := _REGISTERED_TWICE.search(str(error)):
        others = ", ".join(_packages_with(twice["name"], module)) or "another package"
        return f"{found}; {others} has registered it too: import only one of them in a training function"
    if wanted := _wanted_by(package.partition(" ")[0]):
        return f'{found}; it needs {wanted}: pip install "{wanted}"'
    return f"{found}; install versions that fit: pip install --upgrade {package.partition(' ')[0]} protobuf"


def _generated_module(error: BaseException) -> str:
    """The innermost one whose import has failed, perhaps as the cause of another error."""
    if origin := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        return _generated_module(origin)
    found = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and code.co_filename.endswith(_GENERATED):
            found = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return found


def _distribution_of(module: str) -> str:
    """Its name and version. Several distributions may share a namespace such as `google`."""
    top = module.partition(".")[0]
    names = packages_distributions().get(top, [])
    name = next((name for name in names if _wanted_by(name)), names[0] if names else "")
    return f"{name} {_version_of(name)}" if name else top


def _wanted_by(distribution: str) -> str:
    """Its requirement of protobuf, without those of extras."""
    try:
        requirements = requires(distribution) or []
    except PackageNotFoundError:
        return ""
    for each in requirements:
        if (match := _REQUIREMENT.match(each)) and "extra" not in (match["marker"] or ""):
            return "protobuf" + match["versions"].strip(" ()")
    return ""


def _packages_with(name: str, failed: str) -> list[str]:
    """Those that have already registered the file or symbol."""
    modules = [
        each
        for each, loaded in list(sys.modules.items())
        if each.endswith("_pb2") and each != failed and name in _registered_by(loaded)
    ]
    return sorted({_distribution_of(each) for each in modules})


def _registered_by(module: object) -> set[str]:
    descriptor = getattr(module, "DESCRIPTOR", None)
    if descriptor is None:
        return set()
    return {descriptor.name, *(each.full_name for each in descriptor.message_types_by_name.values())}


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(unknown version)"
