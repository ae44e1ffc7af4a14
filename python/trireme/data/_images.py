"""Folders of images."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import pyarrow as pa

from trireme import _core
from trireme._extras import imported
from trireme.data._file_source import FileSource, Placed, ReadFilesOptions, in_threads, read_files
from trireme.data._fragment import DataError, Fragment
from trireme.data._paths import File
from trireme.data._promotion import conform
from trireme.data._tensors import RaggedTensorType, array_of, ragged_tensors
from trireme.data._whole_files import FilesFragment, together

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_EXTENSIONS = ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif")
# The number of images that are checked for having the same shape.
_LOOKED_AT = 64
# The default limit: twice the size at which Pillow warns, as in C++.
MAX_PIXELS = 178_956_970
_pillow_limit = threading.Lock()
# The typical ratio of an image's size in memory to its file size, if the shape is unknown.
_UNPACKED = 10


def read_images(
    paths: Any,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    max_pixels: int = MAX_PIXELS,
    **options: Unpack[ReadFilesOptions],
) -> Dataset:
    """Images in the column "image", as arrays [height, width, channels]; needs Pillow.

    size: (height, width) to which all images are resized; default: keep their sizes. mode: a Pillow mode, for example
    "RGB" or "L". max_pixels: the limit for one file, before resizing; larger images are refused, because a small file
    can declare an image that fills the memory.
    """
    check_max_pixels("read_images", max_pixels)
    sides: Any = None if size is None else tuple(size) if isinstance(size, (tuple, list)) else ()
    if sides is not None and (len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides)):
        raise _core.ConfigError(f"read_images: size = {size!r}: expected (height, width), both at least 1")
    modes = pillow().MODES
    if mode is not None and mode not in modes:
        raise _core.ConfigError(f"read_images: mode = {mode!r}: Pillow has {', '.join(modes)}")
    return read_files(
        "read_images",
        paths,
        partial(ImageSource, options=_Request(sides, mode, max_pixels)),
        options,
        extensions=_EXTENSIONS,
    )


class _Request(NamedTuple):
    """How to decode the images."""

    size: tuple[int, int] | None
    mode: str | None
    max_pixels: int

    def image(self, file: File, place: np.ndarray | None = None) -> np.ndarray:
        return decode(file.read_raw(), file.shown, self.size, self.mode, place, self.max_pixels)


class ImageSource(FileSource):
    def _infer(self, file: File) -> pa.Schema:
        first = self._options.image(file)
        files = self._listing.files()
        chosen = files[:: max(1, len(files) // _LOOKED_AT)]
        known = self._options.size is not None and self._options.mode is not None
        same = known or {shape for shape in in_threads(self._shape, chosen) if shape} <= {first.shape}
        kind = array_of([first]).type if same else ragged_tensors([first]).type
        return pa.schema([("image", kind)])

    def _shape(self, file: File) -> tuple[int, ...]:
        """Empty if the file is unreadable and unreadable files are skipped."""
        size, mode, max_pixels = self._options
        try:
            # Buffered: some of Pillow's parsers read lines, which files of Arrow do not offer.
            with io.BufferedReader(file.open_file()) as handle, _opened(handle, max_pixels) as image:
                height, width = size or (image.height, image.width)
                bands = len(pillow().new(mode or image.mode, (1, 1)).getbands())
                return (height, width) if bands == 1 else (height, width, bands)
        except (OSError, ValueError, SyntaxError) as error:
            if self._on_bad_file == "raise":
                raise _unreadable(file.shown, error) from error
            return ()

    def _plan(self, files: Sequence[Placed], body: pa.Schema) -> list[list[Fragment]]:
        schema, names = self._whole_schema(), self.schema().names
        kind = body.field(0).type
        sizes: list[float] = [_UNPACKED * file.size for file, _ in files]
        if isinstance(kind, pa.FixedShapeTensorType):
            sizes = [float(np.prod(kind.shape))] * len(files)
        average = sum(sizes) / max(len(sizes), 1)
        return [[ImagesFragment(part, schema, names, average, self._options)] for part in together(files, sizes)]


class ImagesFragment(FilesFragment):
    costly = True
    _options: _Request

    def _content(self, files: Sequence[File], field: pa.Field) -> pa.Array:
        if isinstance(field.type, RaggedTensorType):
            images = [self._options.image(file) for file in files]
            batch = pa.record_batch([ragged_tensors(images)], [field.name])
            return conform(batch, pa.schema([field]), files[0].shown).column(0)
        together = np.empty((len(files), *field.type.shape), field.type.value_type.to_pandas_dtype())
        for file, place in zip(files, together, strict=True):
            image = self._options.image(file, place)
            if (image.shape, image.dtype) != (place.shape, place.dtype):
                raise DataError(
                    f"{file.shown} is {image.dtype}{list(image.shape)}, but the first images are "
                    f"{place.dtype}{list(place.shape)}: read_images(size=(height, width), mode='RGB') makes them equal"
                )
            if image is not place:
                place[...] = image
        return array_of(together, field.name)


def decode(
    content: bytes,
    shown: str,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    place: np.ndarray | None = None,
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """Decodes mostly without the interpreter's lock. Writes to `place` if it fits and that saves a copy."""
    try:
        with _opened(io.BytesIO(content), max_pixels) as image:
            if size is not None:
                # Lets the JPEG decoder scale a large image down while it decodes.
                image.draft(mode, (2 * size[1], 2 * size[0]))
            if mode is not None and image.mode != mode:
                image = image.convert(mode)
            if size is not None and (image.height, image.width) != size:
                if image.mode in ("L", "RGB"):
                    return _resampled(image, size, place)
                image = image.resize((size[1], size[0]), pillow().Resampling.BILINEAR)
            array: np.ndarray = np.asarray(image)
            return array
    except (OSError, ValueError, SyntaxError, EOFError, pillow().DecompressionBombError) as error:
        raise _unreadable(shown, error) from error


def check_max_pixels(reader: str, max_pixels: Any) -> None:
    if isinstance(max_pixels, bool) or not isinstance(max_pixels, int) or max_pixels < 1:
        raise _core.ConfigError(f"{reader}: max_pixels = {max_pixels!r}: expected an integer, at least 1")


def _unreadable(shown: str, error: Exception) -> DataError:
    if isinstance(error, pillow().UnidentifiedImageError):
        return DataError(f"{shown} is not an image that Pillow can read")
    return DataError(f"{shown} is not a readable image: {error}")


@contextlib.contextmanager
def _opened(file: Any, max_pixels: int) -> Iterator[Any]:
    """Applies `max_pixels` in place of Pillow's limit, which is global to the process."""
    module = pillow()
    try:
        image = module.open(file)  # reads only the header
    except module.DecompressionBombError:
        file.seek(0)
        with _pillow_limit:
            before, module.MAX_IMAGE_PIXELS = module.MAX_IMAGE_PIXELS, None
            try:
                image = module.open(file)
            finally:
                module.MAX_IMAGE_PIXELS = before
    with image:
        if image.width * image.height > max_pixels:
            raise ValueError(
                f"it has {image.width} x {image.height} pixels, more than max_pixels = {max_pixels}: raise it if "
                "that is intended"
            )
        yield image


def _resampled(image: Any, size: tuple[int, int], place: np.ndarray | None) -> np.ndarray:
    """The result of Pillow's BILINEAR with the rows first, in a third of the time; Pillow's order depends on its
    version."""
    shape = (*size, 3) if image.mode == "RGB" else size
    if place is None or place.shape != shape or place.dtype != np.uint8:
        place = np.empty(shape, np.uint8)
    _core.resample(_pixels(image), place.reshape((*size, -1)))
    return place


def _pixels(image: Any) -> np.ndarray:
    """[height, width, bytes per pixel]. Pillow's own memory if it is accessible, with four bytes for three colours."""
    image.load()
    pixels: np.ndarray
    if hasattr(image, "__arrow_c_array__"):
        with contextlib.suppress(ValueError):  # the memory is not contiguous
            shown = pa.array(image)
            values = shown if pa.types.is_uint8(shown.type) else shown.values
            pixels = np.frombuffer(values.buffers()[1], np.uint8)
            return pixels.reshape((image.height, image.width, -1))
    pixels = np.ascontiguousarray(image)
    return pixels.reshape((image.height, image.width, -1))


def pillow() -> Any:
    return imported("PIL.Image", 'images need Pillow: pip install "trireme[images]"')
