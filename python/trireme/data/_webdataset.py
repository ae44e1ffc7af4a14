"""WebDataset shards: tar files in which the files of a sample have the same name with different suffixes."""

from __future__ import annotations

import itertools
import json
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pyarrow as pa

from trireme import _core
from trireme.data._datasource import named
from trireme.data._file_source import FileFragment, FileSource, ReadFilesOptions, read_files
from trireme.data._fragment import DataError
from trireme.data._images import MAX_PIXELS, check_max_pixels, decode
from trireme.data._numpy_files import array_in
from trireme.data._paths import File
from trireme.data._tensors import batch_of_rows

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "bmp", "gif", "tif", "tiff", "webp")
# The number of samples of the first shard that determine the columns.
_LOOKED_AT = 64
_BATCH_ROWS = 64
# The largest value that fits into a column. A compressed file may unpack to any size.
_MOST_BYTES = 2**31 - 1
_BATCH_BYTES = 8 << 20

Sample = dict[str, Any]
_Read = TypeVar("_Read")


def read_webdataset(
    paths: Any,
    *,
    decoder: bool | Callable[[Sample], Sample] | None = True,
    suffixes: Sequence[str] | None = None,
    max_pixels: int = MAX_PIXELS,
    **options: Unpack[ReadFilesOptions],
) -> Dataset:
    """Tar files: one row per sample, with its name in "__key__" and one column per suffix.

    decoder: True decodes txt, json, cls, npy and images by suffix; a function receives the sample as a dict of bytes;
    None keeps bytes. suffixes: only these are read. max_pixels: the limit for an image; larger images are refused.
    """
    check_max_pixels("read_webdataset", max_pixels)
    if not callable(decoder) and decoder not in (True, False, None):
        raise _core.ConfigError(f"read_webdataset: decoder = {decoder!r}: expected True, None or a function")
    given = {name: value for name, value in options.items() if name != "verbose_open"}
    wanted = None if suffixes is None else tuple(suffix.lstrip(".") for suffix in suffixes)
    chosen = _BySuffix(max_pixels) if decoder is True else decoder
    source = partial(WebDatasetSource, options=(chosen, wanted))
    return read_files("read_webdataset", paths, source, given, extensions=("tar", "tgz"))


@dataclass(frozen=True)
class _BySuffix:
    """Decodes the files of a sample by their suffixes."""

    max_pixels: int


class WebDatasetFragment(FileFragment):
    def _batches(self, columns: Sequence[str], row: int) -> Iterator[pa.RecordBatch]:
        decoder, suffixes = self._options
        # If only the names are needed, the files' contents are not read.
        needed = decoder if set(columns) - {"__key__"} else None
        samples = itertools.islice(_samples(self._file, needed, suffixes), row, None)
        while rows := list(_some(samples)):
            for sample in rows:
                strange = next((name for name in sample if name not in self._body.names), None)
                if strange is not None and not callable(decoder):
                    raise DataError(
                        f"{self._file.shown}: sample {sample['__key__']!r} has a .{strange}, but the first samples "
                        f"have only {', '.join(self._body.names[1:])}; read_webdataset(suffixes=[...]) "
                        "selects which to read"
                    )
            if not columns:
                yield pa.record_batch([pa.nulls(len(rows))], ["sample"])
            else:
                yield _batch(self._file, [{name: sample.get(name) for name in columns} for sample in rows])


class WebDatasetSource(FileSource):
    _fragment = WebDatasetFragment

    def _infer(self, file: File) -> pa.Schema:
        samples = list(itertools.islice(_samples(file, *self._options), _LOOKED_AT))
        if not samples:
            raise DataError(f"{file.shown} has no samples: the first file defines the columns")
        return _batch(file, samples).schema


def _batch(file: File, samples: Sequence[Sample]) -> pa.RecordBatch:
    with named(file.shown):
        return batch_of_rows(samples)


def _some(samples: Iterator[Sample]) -> Iterator[Sample]:
    size = 0
    for sample in itertools.islice(samples, _BATCH_ROWS):
        yield sample
        size += sum(getattr(value, "nbytes", 0) or 8 for value in sample.values())
        if size >= _BATCH_BYTES:
            return


def _samples(file: File, decoder: Any, suffixes: tuple[str, ...] | None) -> Iterator[Sample]:
    current: Sample = {}
    for key, suffix, content in _members(file, suffixes):
        if current and current["__key__"] != key:
            yield _decoded(current, decoder, file)
            current = {}
        current.setdefault("__key__", key)
        if suffix in current:
            raise DataError(f"{file.shown}: sample {key!r} has two files with the suffix .{suffix}")
        current[suffix] = content
    if current:
        yield _decoded(current, decoder, file)


def _members(file: File, suffixes: tuple[str, ...] | None) -> Iterator[tuple[str, str, bytes]]:
    """(key, suffix, content). The key ends at the first dot of the file's name."""
    with file.open_stream() as stream:
        tar = _core.TarReader(stream)
        while (member := _readable(file, tar.next)) is not None:
            path, size, is_file = member
            folder, name = posixpath.split(path)
            stem, _, suffix = name.partition(".")
            if not is_file or not stem or not suffix:
                continue
            if suffixes is None or suffix in suffixes:
                if size > _MOST_BYTES:
                    raise DataError(f"{file.shown}: {path} has {size} bytes, more than the limit of {_MOST_BYTES}")
                yield posixpath.join(folder, stem), suffix, _readable(file, tar.content)


def _readable(file: File, read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except RuntimeError as error:
        raise DataError(f"{file.shown} is not a readable tar file: {error}") from None


def _decoded(sample: Sample, decoder: Any, file: File) -> Sample:
    if decoder is None or decoder is False:
        return sample
    where = f"{file.shown}: sample {sample['__key__']!r}"
    if callable(decoder):
        try:
            result = decoder(sample)
        except Exception as error:
            raise DataError(f"{where}: the decoder raised {type(error).__name__}: {error}") from error
        if not isinstance(result, dict):
            raise DataError(f"{where}: the decoder returned {type(result).__name__}, expected a dict")
        return result
    return {
        name: value if name == "__key__" else _value(name, value, where, decoder.max_pixels)
        for name, value in sample.items()
    }


def _value(suffix: str, content: bytes, where: str, max_pixels: int) -> Any:
    kind = suffix.rpartition(".")[2].lower()
    try:
        if kind in ("txt", "text", "transcript"):
            return content.decode()
        if kind in ("cls", "cls2", "index", "count"):
            return int(content)
        if kind in ("json", "jsn"):
            return json.loads(content)
        if kind == "npy":
            return array_in(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}, .{suffix}: {error}") from error
    return decode(content, f"{where}, .{suffix}", max_pixels=max_pixels) if kind in _IMAGES else content
