from __future__ import annotations

from typing import Any

from trireme._session import get_context


def warn_of_random_numbers(library: str, config: dict[str, Any]) -> None:
    """Rank 0 warns if parameters draw random numbers that the library neither stores nor can restore."""
    drawn = config["unrepeatable"]
    if drawn and get_context().get_world_rank() == 0:
        print(
            f"warning: {library} does not store its random numbers ({', '.join(drawn)}): the resumed model is valid, "
            "but not identical to one of an undisturbed run",
            flush=True,
        )
