"""Which names of Ray the script has used, in the driver and in its workers."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

from trireme.compat.ray._names import Name

# A file that all processes of the script append to, for --ray-compat=report.
_FILE = "TRIREME_RAY_COMPAT_USAGE"
_seen: dict[str, tuple[str, str]] = {}


def note(full_name: str, name: Name) -> None:
    if full_name in _seen:
        return
    _seen[full_name] = (name.how, name.note)
    if path := os.environ.get(_FILE):
        line = json.dumps([full_name, name.how, name.note]) + "\n"
        # Many processes append: one write of a short line is not interleaved with others.
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            file.write(line.encode())


def collect() -> None:
    """Makes this process and those that it starts write down what they use."""
    descriptor, path = tempfile.mkstemp(prefix="trireme_ray_names_")
    os.close(descriptor)
    os.environ[_FILE] = path


def table() -> str:
    """All names that were used since collect(), with how each was served. Removes the file."""
    used = dict(_seen)
    if path := os.environ.pop(_FILE, None):
        with open(path, encoding="utf-8") as file:
            for line in file:
                full_name, how, text = json.loads(line)
                used[full_name] = (how, text)
        os.unlink(path)
    if not used:
        return "Trireme in place of Ray: the script used no names of Ray"
    width = max(map(len, used))
    lines = ["Names of Ray that the script used:"]
    for full_name, (how, text) in sorted(used.items()):
        lines.append(f"  {full_name:<{width}}  {how:<7}  {text}".rstrip())
    counts = [f"{sum(how == each for how, _ in used.values())} {each}" for each in ("same", "adapted", "refused")]
    return "\n".join([*lines, f"  {', '.join(counts)}"])
