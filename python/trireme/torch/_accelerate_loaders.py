"""Loaders of accelerator.prepare(): their position is part of every checkpoint, and a restart resumes from it."""

from __future__ import annotations

import base64
import warnings
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from trireme._patches import wrap
from trireme._positions import Position, Positions
from trireme._session import current_session

_ATTRIBUTE = "_trireme_position"
Iterate = Callable[[Any], Iterator[Any]]


def keep_positions(module: ModuleType) -> None:
    """module: accelerate.accelerator."""

    def prepare_data_loader(original: Any, self: Any, data_loader: Any, *arguments: Any, **options: Any) -> Any:
        made = original(self, data_loader, *arguments, **options)
        if made is not data_loader and hasattr(made, "iteration"):
            setattr(made, _ATTRIBUTE, _LoaderPosition(made, self.num_processes, current_session("prepare").positions))
        return made

    wrap(module.Accelerator, "prepare_data_loader", prepare_data_loader)
    import accelerate
    from accelerate import data_loader as loaders

    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        wrap(getattr(loaders, name), "__iter__", _counted)
    wrap(loaders, "skip_first_batches", _leave_to_the_script)
    module.skip_first_batches = accelerate.skip_first_batches = loaders.skip_first_batches  # type: ignore[attr-defined]


def _counted(original: Iterate, self: Any) -> Iterator[Any]:
    position: _LoaderPosition | None = vars(self).get(_ATTRIBUTE)
    return original(self) if position is None else position.batches(self, original)


def _leave_to_the_script(original: Any, dataloader: Any, num_batches: int = 0) -> Any:
    """A script that calls skip_first_batches() itself keeps its own position in that loader."""
    if (position := vars(dataloader).get(_ATTRIBUTE)) is not None:
        position.forget()
    return original(dataloader, num_batches)


class _LoaderPosition:
    """done: batches of this epoch that this rank has taken. order: the generator's state when the epoch began."""

    def __init__(self, loader: Any, processes: int, positions: Positions) -> None:
        self._loader = loader
        self._positions = positions
        self._processes = 1 if _splits_batches(loader) else processes
        self._done = self._skip = 0
        self._resumed_epoch = -1
        self._seeded = _part(loader, "initial_seed")
        self._generator = _generator_of(loader)
        self._order, self._ordered = "", False
        stored = positions.add("accelerate", self.now)
        if stored is not None:
            self._resume(stored)

    def now(self) -> Position:
        loader = self._loader
        epoch, done, order = loader.iteration, self._done, self._order
        if done and done == _length(loader):
            epoch, done = epoch + 1, 0
        if not done:
            # The next epoch begins with it. Before the first one, the ranks do not have the same.
            order = _text_of(self._generator) if self._ordered else ""
        position: Position = {"epoch": epoch, "batches": done * self._processes, "size": _size(loader), "order": order}
        if self._seeded is not None:
            position["seed"] = self._seeded.initial_seed
        return position

    def forget(self) -> None:
        self._done = self._skip = 0

    def batches(self, loader: Any, iterate: Iterate) -> Iterator[Any]:
        """The loader's batches, without those that were taken before the restart."""
        from accelerate.data_loader import skip_first_batches

        self._positions.begin()
        skip = self._skip if loader.iteration == self._resumed_epoch else 0
        self._begin_order(loader)
        source = loader
        if skip:
            source = skip_first_batches(loader, skip)  # which forgets the position
            source.iteration = loader.iteration
        self._done, self._skip = skip, 0
        # Creating the iterator draws random numbers, which the interrupted epoch has drawn before.
        random = torch.get_rng_state() if skip else None
        try:
            for batch in iterate(source):
                if random is not None:
                    torch.set_rng_state(random)
                    random = None
                self._done += 1
                yield batch
        except GeneratorExit:  # the script stopped iterating: its next iteration begins from the start
            self._done = 0
            raise
        loader.iteration = source.iteration
        self._done = 0

    def _begin_order(self, loader: Any) -> None:
        """All ranks have the order of rank 0, as Accelerate arranges it when the epoch begins."""
        if getattr(loader, "rng_types", None) and getattr(loader, "synchronized_generator", None) is not None:
            from accelerate.utils import synchronize_rng_states

            synchronize_rng_states(loader.rng_types, loader.synchronized_generator)
        self._order, self._ordered = _text_of(self._generator), True

    def _resume(self, stored: Position) -> None:
        loader = self._loader
        if stored["batches"] and stored["size"] != _size(loader):
            raise ValueError(
                f"Accelerator.prepare(): the checkpoint was created in the middle of an epoch over {stored['size']} "
                f"samples, and this loader has {_size(loader)}; continue with the same data"
            )
        self._skip, rest = divmod(stored["batches"], self._processes)
        if rest:
            warnings.warn(
                f"the checkpoint was created after {stored['batches']} batches of all workers, which is not a multiple "
                f"of the {self._processes} batches of a step now: the last {rest} are repeated",
                stacklevel=2,
            )
        self._done = self._skip
        loader.iteration = self._resumed_epoch = stored["epoch"]
        if getattr(loader, "use_stateful_dataloader", False):
            # load_state() would move it a second time, to a position without the epoch and its order.
            loader.load_state_dict = _ignore
        if self._generator is not None and stored["order"]:
            self._order, self._ordered = stored["order"], True
            self._generator.set_state(_state_of(stored["order"]))
        if self._seeded is not None and "seed" in stored:
            self._seeded.initial_seed = stored["seed"]


def _ignore(state: dict[str, Any]) -> None:
    pass


def _parts(loader: Any) -> Iterator[Any]:
    """The loader's samplers, outermost first. Accelerate wraps them in each other."""
    part = _inner(loader)
    while part is not None:
        yield part
        part = _inner(part)


def _inner(part: Any) -> Any:
    # Not by their truth, which is their length: that of a stream's sampler is unknown.
    inner = getattr(part, "batch_sampler", None)
    return getattr(part, "sampler", None) if inner is None else inner


def _part(loader: Any, attribute: str) -> Any:
    return next((part for part in _parts(loader) if hasattr(part, attribute)), None)


def _splits_batches(loader: Any) -> bool:
    places = [loader, getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None)]
    return any(getattr(place, "split_batches", False) for place in places)


def _generator_of(loader: Any) -> torch.Generator | None:
    """The generator of a shuffling sampler. With one process, Accelerate leaves the sampler without one, which then
    takes a seed from torch's global generator, at a moment that nobody can return to."""
    sampler = _part(loader, "generator")
    if sampler is None or hasattr(sampler, "initial_seed"):  # seeded for every epoch
        return None
    if sampler.generator is None:
        sampler.generator = torch.Generator()
        sampler.generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    generator: torch.Generator = sampler.generator
    return generator


def _size(loader: Any) -> int:
    """-1 if the number of samples is unknown."""
    try:
        return len(loader.dataset)
    except TypeError:
        return -1


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _text_of(generator: torch.Generator | None) -> str:
    if generator is None:
        return ""
    return base64.b64encode(zlib.compress(generator.get_state().numpy().tobytes())).decode()


def _state_of(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)
