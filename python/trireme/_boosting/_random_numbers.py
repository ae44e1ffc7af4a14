from __future__ import annotations

from trireme._session import get_context


def warn_of_random_numbers(library: str, drawn: list[str]) -> None:
    """drawn: the parameters that make the library draw random numbers that it neither stores nor can restore."""
    if drawn and get_context().get_world_rank() == 0:
        print(
            f"warning: {library} does not store its random numbers ({', '.join(drawn)}): the resumed model is valid, "
            "but not identical to one of an undisturbed run",
            flush=True,
        )
