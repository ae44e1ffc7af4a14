"""prepare_data_loader(): each worker's part of the data, reshuffled every epoch and resumable at any batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from trireme._core import count_of
from trireme._positions import Positions
from trireme._session import current_session
from trireme.torch._compare import check_same_data
from trireme.torch._device import devices_of
from trireme.torch._epochs import EpochSampler, StreamSampler
from trireme.torch._even import EvenSteps
from trireme.torch._group import process_group_ready
from trireme.torch._order import Order, is_distributed, parts_of
from trireme.torch._rank_sampler import RankSampler
from trireme.torch._settings import settings_of
from trireme.torch._transfer import transferred


class PreparedDataLoader(DataLoader):  # type: ignore[misc]
    """A DataLoader with a position that can be stored, returned by prepare_data_loader().

    epoch: the current epoch, or the epoch of the next iteration.
    sampler: a DistributedSampler. set_epoch() selects the epoch of the next iteration: the rest of it if a restart has
        put the loader in the middle of that epoch, otherwise all of it.
    """

    epoch: int
    _done: int  # samples, batches or steps of this epoch done by all ranks
    _begun: bool  # by an iterator of this process
    _pass: int  # counts the iterators: an older iterator does not move the position
    _left: bool  # the epoch was abandoned: the next iteration begins the next epoch
    _positions: Positions
    _shard: RankSampler | None
    _epochs: EpochSampler  # the shard, if there is one
    _unit: str
    _per_step: int
    _device: torch.device | None
    _ahead: bool
    _unused: int  # batches that the consumer fetches before it uses the first
    _even: EvenSteps | None
    _draws: bool  # creating an iterator draws a seed from torch's generator, as DataLoader does

    def __iter__(self) -> Iterator[Any]:
        self._positions.begin()
        asked = self._epochs.take_asked()
        if asked is not None and (self._begun or asked != self.epoch):
            self.epoch, self._done = asked, 0
        elif self._begun:  # and abandoned
            self.epoch, self._done = self.epoch + 1, 0
        self._begun, self._left, self._pass = True, False, self._pass + 1
        if self._shard is not None:
            self._shard.start_at(self.epoch, self._done)
        else:
            self._epochs.epoch = self.epoch
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(self.epoch)
        return self._counted(self._batches(), self._pass, self._done)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch, as plain numbers. It is equal on all ranks."""
        state: dict[str, Any] = {"epoch": self.epoch, self._unit: self._done}
        if self._shard is not None:
            state |= {"seed": self._shard.order.seed, "size": self._shard.order.size}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position. The next iteration resumes from it, even with another number of workers."""
        expected = self.state_dict()
        if not isinstance(state, dict) or state.keys() != expected.keys():
            raise ValueError(
                f"load_state_dict({state!r}): not a state of this loader; expected the keys {', '.join(expected)}"
            )
        if self._shard is not None:
            if state["size"] != self._shard.order.size:
                raise ValueError(
                    f"load_state_dict(): the state is of a loader over {state['size']} {self._unit}, and this one has "
                    f"{self._shard.order.size}; continue with the same data, or begin a new epoch without the state"
                )
            self._shard.order.seed = state["seed"]
        self.epoch, self._done, self._begun, self._left = state["epoch"], state[self._unit], False, False
        self._pass += 1

    def _position(self) -> dict[str, Any]:
        """The position to store in a checkpoint: where a restart resumes."""
        place = self.state_dict()
        batch = self.batch_size or 1 if self._unit == "samples" else 1
        if self._left or (self._shard is not None and not self._shard.has_more(self._done, batch)):
            place |= {"epoch": self.epoch + 1, self._unit: 0}
        if place.get("seed", 0) >= 2**63:  # integers in manifests have 64 bits and a sign
            place["seed"] -= 2**64
        return place

    def _go_on_from(self, position: dict[str, Any]) -> None:
        if position.keys() == (mine := self.state_dict()).keys() and position.get("size") == mine.get("size"):
            self.load_state_dict(position | ({"seed": position["seed"] % 2**64} if "seed" in position else {}))
        elif any(position.get(unit, 0) for unit in _UNITS):
            theirs, here = [
                f"{state.get('size', 'an unknown number of')} {_unit_of(state)}" for state in (position, mine)
            ]
            raise ValueError(
                f"prepare_data_loader(): the checkpoint was created in the middle of an epoch over {theirs}, and this "
                f"loader has {here}; continue with the same data, or restart the epoch with "
                "prepare_data_loader(..., resume=False)"
            )
        else:
            self.epoch = position["epoch"]  # the data may change between epochs

    def _batches(self) -> Iterator[Any]:
        # The interrupted epoch has drawn the seed of its iterator: a restored generator must not draw it again.
        random = torch.get_rng_state() if self._done or not self._draws else None
        if not self._draws:
            torch.default_generator.manual_seed(torch.initial_seed() + self.epoch)
        batches = super().__iter__()
        if random is not None:
            torch.set_rng_state(random)
        if self._shard is None and self._done:  # a stream cannot seek
            batches = islice(batches, self._done, None)
        if self._even is not None:
            batches = self._even(batches)
        return batches if self._device is None else transferred(batches, self._device, self._ahead)

    def _counted(self, batches: Iterator[Any], number: int, start: int) -> Iterator[Any]:
        size = self._shard.order.size if self._shard is not None else None
        for step, batch in enumerate(batches, 1):
            done = start + max(step - self._unused, 0) * self._per_step
            if self._pass == number:
                self._done = done if size is None else min(done, size)
            try:
                yield batch
            except GeneratorExit:  # the caller stopped iterating, for example with a break
                self._left = self._left or self._pass == number
                raise
        if self._pass == number:
            self.epoch, self._done, self._begun = self.epoch + 1, 0, False


def prepare_data_loader(
    data_loader: DataLoader,
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
    resume: bool = True,
) -> PreparedDataLoader:
    """Return a loader over this worker's part of the data, with all other options unchanged.

    If the loader shuffles, every epoch has a new order. All workers have the same number of steps. The position is
    stored with every checkpoint, and a worker that starts from a checkpoint resumes from it.

    add_dist_sampler: False to iterate all of the data on every worker. A distributed sampler is kept.
    move_to_device: whether to move batches to this worker's device.
    auto_transfer: with a GPU, copy the next batch while the current one is processed.
    resume: False to begin with epoch 0 and ignore the position in the checkpoint.
    """
    session = current_session("prepare_data_loader")
    if not isinstance(data_loader, DataLoader):
        raise TypeError(f"prepare_data_loader() expects a torch DataLoader, got {type(data_loader).__name__}")
    if isinstance(data_loader, PreparedDataLoader):
        raise ValueError("prepare_data_loader(): this loader is already prepared; prepare it once and keep the result")
    context = session.context
    made = _copy_of(data_loader)
    split = add_dist_sampler and not _is_distributed(data_loader)
    rank, count = (context.get_world_rank(), context.get_world_size()) if split else (0, 1)
    settings = settings_of(session)
    if isinstance(data_loader.dataset, IterableDataset):
        made._unit, made._per_step = "steps", 1
        made._epochs = StreamSampler(made.dataset, rank, count, False)
        made.__dict__["sampler"] = made._epochs
        if count > 1:
            process_group_ready("prepare_data_loader")
            made._even = EvenSteps()
    else:
        _split(made, rank, count, settings.seed)
        if count > 1:
            settings.loaders += 1
            check_same_data(settings.loaders, rank, _data_of(made))
    if move_to_device:
        made._device, made._ahead = devices_of(context)[0], auto_transfer
    made._positions = session.positions
    stored = session.positions.add("loader", made._position)
    if resume and stored is not None:
        made._go_on_from(stored)
    return made


_UNITS = ("samples", "batches", "steps")


def _unit_of(state: dict[str, Any]) -> str:
    return next((unit for unit in _UNITS if unit in state), "items")


def _data_of(made: PreparedDataLoader) -> str:
    """A description that must be the same on all ranks."""
    assert made._shard is not None
    size = "an unknown number of" if made._shard.order.size is None else made._shard.order.size
    batch = f" in batches of {made.batch_size}" if made._unit == "samples" and made.batch_size else ""
    return f"{size} {made._unit}{batch}{' with drop_last' if made.drop_last else ''}, seed {made._shard.order.seed}"


def _is_distributed(loader: DataLoader) -> bool:
    """Whether its sampler already splits the data between workers."""
    samplers = [loader.sampler, *parts_of(loader.batch_sampler)]
    return any(is_distributed(sampler) for sampler in samplers)


def _copy_of(loader: DataLoader) -> PreparedDataLoader:
    """Copies all attributes, including those added by a subclass of DataLoader."""
    kind: Any = PreparedDataLoader
    if type(loader) is not DataLoader:
        kind = type(PreparedDataLoader.__name__, (PreparedDataLoader, type(loader)), {})
    made: PreparedDataLoader = kind.__new__(kind)
    made.__dict__.update(loader.__dict__)
    made.__dict__["_iterator"] = None  # persistent workers belong to the original
    made.epoch, made._done, made._begun, made._left, made._pass = 0, 0, False, False, 0
    made._shard = made._device = made._even = None
    made._ahead, made._unused, made._draws = False, 0, True
    return made


def _split(made: PreparedDataLoader, rank: int, count: int, seed: int) -> None:
    """Sets the samplers in __dict__: DataLoader forbids setting them as attributes."""
    own_batches = made.batch_size is None and made.batch_sampler is not None
    sampler: Iterable[Any] = made.batch_sampler if own_batches else made.sampler
    order = Order(sampler, _seed_of(made, sampler, seed))
    drop_last = bool(getattr(sampler, "drop_last", False) if own_batches else made.drop_last)
    made._shard = made._epochs = RankSampler(order, made.dataset, rank, count, drop_last)
    made._unit, made._per_step = ("batches", count) if own_batches else ("samples", count * (made.batch_size or 1))
    _check_size(made, made._shard, count, own_batches)
    made.__dict__["sampler"] = made._shard
    if own_batches:
        made.__dict__["batch_sampler"] = made._shard
    elif made.batch_size is not None:
        made.__dict__["batch_sampler"] = BatchSampler(made._shard, made.batch_size, drop_last)


def _seed_of(loader: DataLoader, sampler: Any, otherwise: int) -> int:
    """The seed of the user's generator, if there is one."""
    if loader.generator is None and type(sampler).__module__.startswith("torchdata."):
        return otherwise  # a StatefulDataLoader gives its sampler a generator, with another seed on every rank
    generators = [getattr(part, "generator", None) for part in parts_of(sampler)] + [loader.generator]
    seeds = [generator.initial_seed() for generator in generators if isinstance(generator, torch.Generator)]
    return seeds[0] if seeds else otherwise


def _check_size(made: PreparedDataLoader, shard: RankSampler, count: int, own_batches: bool) -> None:
    size = shard.order.size
    if size is None:
        return
    needed = 1 if own_batches else made.batch_size or 1
    what = "batches" if own_batches else "samples"
    if len(shard) >= needed:
        return
    arithmetic = f"{size} {what} over {count_of(count, 'worker')} are {len(shard)} for each"
    if not len(shard) or made.drop_last:
        raise ValueError(
            f"prepare_data_loader(): {arithmetic}, less than a batch of {needed} (with drop_last={made.drop_last}), so "
            "an epoch has no steps; use a smaller batch_size or fewer workers"
        )
    warnings.warn(
        f"prepare_data_loader(): {arithmetic}, less than batch_size={needed}: an epoch is a single smaller batch",
        stacklevel=4,
    )
