"""`python -m trireme.compat.port [--write] script.py...`, started by `trireme port`."""

from __future__ import annotations

import sys
from pathlib import Path

EXTRA = 'trireme port needs libcst, which is not installed: pip install "trireme[port]"'


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    paths = [Path(word) for word in arguments if word != "--write"]
    if not paths:
        sys.exit("usage: trireme port [--write] script.py...")
    try:
        from trireme.compat.port._rewrite import port
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        sys.exit(EXTRA)
    for path in paths:
        source = path.read_text(encoding="utf-8")
        try:
            ported = port(source, str(path))
        except SyntaxError as error:
            sys.exit(f"{path}:{error.lineno}: {error.msg}")
        for note in ported.notes:
            print(f"{path}:{note.line}: {note.text}")
        changes = sum(not note.by_hand for note in ported.notes)
        left = len(ported.notes) - changes
        if not ported.notes:
            print(f"{path}: uses nothing of Ray Train")
        elif write:
            path.write_text(ported.source, encoding="utf-8")
            print(f"{path}: {_lines(changes, 'change')} written, {_lines(left, 'place')} left to change by hand")
        else:
            print(
                f"{path}: {_lines(changes, 'change')} (--write applies them), {_lines(left, 'place')} to change by hand"
            )
        if ported.notes:
            print(f"{path}: afterwards {REMARK}")
    return 0


REMARK = (
    "report() no longer waits for other ranks, result.metrics is the last report of rank 0, and the trainer takes "
    "1 CPU (docs/ray_compat.md)"
)


def _lines(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
