"""The errors for what Trireme does not replace: raised where the script names it, with an alternative."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

_warned: set[str] = set()


class NotInTrireme(ImportError):
    """A name, parameter or use of Ray that compatibility mode does not have. The message names an alternative."""


def refusal(what: str, advice: str) -> NotInTrireme:
    return NotInTrireme(f"{what} is not available in Trireme's compatibility mode for Ray: {advice}")


def unknown(what: str, known: Iterable[str], name: str) -> str:
    close = difflib.get_close_matches(name, list(known), 3, 0.75)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    return (
        f"{what} is not available in Trireme's compatibility mode for Ray{hint}; docs/ray_compat.md lists what is "
        "replaced. Use Trireme's own API for it, or run the script with Ray"
    )


def warn_once(text: str) -> None:
    """For what is accepted without an effect."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=3)
