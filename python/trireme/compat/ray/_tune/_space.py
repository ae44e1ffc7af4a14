"""The search space of ray.tune: what its functions describe, and the configurations that they give.

Values are drawn with the same calls of NumPy as in Ray, so that a script which seeds NumPy gets the same values.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[Any, ...]
Random = Any  # numpy.random, a RandomState or a Generator


@dataclass(frozen=True)
class Domain:
    """A parameter whose value is drawn for each trial."""

    text: str
    draw: Callable[[Random], Any]

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        values = [self.draw(random_source(random_state)) for _ in range(size)]
        return values if size > 1 else values[0]

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Function:
    """sample_from(): a function of the values that are known so far."""

    function: Callable[..., Any]


def random_source(seed: Any) -> Random:
    import numpy

    if seed is None:
        return numpy.random
    if isinstance(seed, (numpy.random.RandomState, numpy.random.Generator)):
        return seed
    return numpy.random.default_rng(seed)


def uniform(lower: float, upper: float) -> Domain:
    return Domain(f"uniform({lower}, {upper})", lambda random: float(random.uniform(lower, upper)))


def quniform(lower: float, upper: float, q: float) -> Domain:
    low, high = _inwards(lower, q, math.ceil) * q, _inwards(upper, q, math.floor) * q
    return Domain(f"quniform({lower}, {upper}, {q})", lambda random: _rounded(random.uniform(low, high), q))


def loguniform(lower: float, upper: float, base: Any = None) -> Domain:
    low, high = _logarithms(lower, upper)
    return Domain(f"loguniform({lower}, {upper})", lambda random: math.exp(random.uniform(low, high)))


def qloguniform(lower: float, upper: float, q: float, base: Any = None) -> Domain:
    low, high = _logarithms(_inwards(lower, q, math.ceil) * q, _inwards(upper, q, math.floor) * q)
    return Domain(
        f"qloguniform({lower}, {upper}, {q})", lambda random: _rounded(math.exp(random.uniform(low, high)), q)
    )


def randint(lower: int, upper: int) -> Domain:
    return Domain(f"randint({lower}, {upper})", lambda random: _integer(random, lower, upper))


def qrandint(lower: int, upper: int, q: int = 1) -> Domain:
    """Multiples of q, `upper` included unless q is 1."""
    low, high = _inwards(lower, q, math.ceil), _inwards(upper, q, math.floor)
    above = high + (q != 1)
    return Domain(f"qrandint({lower}, {upper}, {q})", lambda random: q * _integer(random, low, above))


def lograndint(lower: int, upper: int, base: Any = None) -> Domain:
    low, high = _logarithms(lower, upper)
    return Domain(f"lograndint({lower}, {upper})", lambda random: math.floor(math.exp(random.uniform(low, high))))


def qlograndint(lower: int, upper: int, q: int, base: Any = None) -> Domain:
    low, high = _logarithms(_inwards(lower, q, math.ceil), _inwards(upper, q, math.floor) + (q != 1))
    return Domain(
        f"qlograndint({lower}, {upper}, {q})", lambda random: q * math.floor(math.exp(random.uniform(low, high)))
    )


def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    return Domain(f"randn({mean}, {sd})", lambda random: float(random.normal(mean, sd)))


def qrandn(mean: float, sd: float, q: float) -> Domain:
    return Domain(f"qrandn({mean}, {sd}, {q})", lambda random: _rounded(random.normal(mean, sd), q))


def choice(categories: Sequence[Any]) -> Domain:
    values = list(categories)
    return Domain(f"choice({values})", lambda random: values[int(random.choice(range(len(values))))])


def sample_from(func: Callable[..., Any]) -> Function:
    return Function(func)


def grid_search(values: Iterable[Any]) -> dict[str, Iterable[Any]]:
    return {"grid_search": values}


def variants(space: dict[str, Any], num_samples: int, seed: Any = None) -> Iterator[tuple[dict[Path, Any], Any]]:
    """The values that were drawn, by path, and the configuration, for each trial in Ray's order: all points of the
    grid, num_samples times; the first variable of the grid changes fastest."""
    random = None  # without NumPy for a grid
    for _ in range(num_samples):
        grid = sorted((path, list(value["grid_search"])) for path, value in _open(space) if isinstance(value, dict))
        for point in itertools.product(*[values for _, values in reversed(grid)]):
            values = dict(zip([path for path, _ in grid], reversed(point), strict=True))
            config = _copied(space)
            for path, value in values.items():
                config = _put(config, path, value)
            if random is None and any(isinstance(value, Domain) for _, value in _open(config)):
                random = random_source(seed)
            yield _drawn(config, values, random)


def tag(index: int, values: dict[Path, Any]) -> str:
    """What the name of a trial's folder shows of its parameters."""
    if not values:
        return str(index)
    return f"{index}_" + ",".join(
        f"{_clean(path[-1])}={_clean(value)}" for path, value in sorted(values.items(), key=_path)
    )


def _path(item: tuple[Path, Any]) -> Path:
    return item[0]


def _drawn(config: Any, values: dict[Path, Any], random: Random) -> tuple[dict[Path, Any], Any]:
    waiting = list(_open(config))
    for path, asked in waiting:
        if isinstance(asked, dict):
            raise ValueError(f"{'/'.join(map(str, path))}: a grid_search() inside another is not supported")
        if isinstance(asked, Domain):
            values[path] = asked.draw(random)
            config = _put(config, path, values[path])
    for path, asked in waiting:
        if isinstance(asked, Function):  # as in Ray, they know all other values and do not show in the trial's name
            config = _put(config, path, _call(asked.function, config))
    return values, config


def _open(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What is not a plain value yet."""
    if isinstance(node, (Domain, Function)) or (isinstance(node, dict) and list(node) == ["grid_search"]):
        yield path, node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _open(value, (*path, name))
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from _open(value, (*path, index))


def _copied(node: Any) -> Any:
    """Of the structure only: a configuration may hold datasets."""
    if isinstance(node, dict):
        return {name: _copied(value) for name, value in node.items()}
    return type(node)(map(_copied, node)) if type(node) in (list, tuple) else node


def _put(node: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    if isinstance(node, tuple):
        return tuple(_put(each, path[1:], value) if at == path[0] else each for at, each in enumerate(node))
    node[path[0]] = _put(node[path[0]], path[1:], value)
    return node


class _Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return _Attributes(self[name]) if isinstance(self[name], dict) else self[name]


def _call(function: Callable[..., Any], config: Any) -> Any:
    try:
        inspect.signature(function).bind({})
    except TypeError:
        return function()
    try:
        return function(config)
    except (AttributeError, KeyError):  # of a function of the specification, as in older scripts: spec.config.lr
        return function(_Attributes({"config": config}))


def _integer(random: Random, low: int, high: int) -> int:
    return int((random.integers if hasattr(random, "integers") else random.randint)(low, high))


def _inwards(bound: float, q: float, towards: Callable[[float], int]) -> int:
    near = round(bound / q)
    return near if math.isclose(bound / q, near) else towards(bound / q)


def _rounded(value: float, q: float) -> float:
    return float(round(value / q) * q)


def _logarithms(lower: float, upper: float) -> tuple[float, float]:
    if not (lower > 0 and 0 < upper < math.inf):
        raise ValueError(f"a logarithmic range needs bounds above 0: got {lower} and {upper}")
    return math.log(lower), math.log(upper)


def _clean(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else re.sub(r"[^a-zA-Z0-9_-]+", "_", str(value)).strip("_")
