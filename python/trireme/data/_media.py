"""Audio and video files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from trireme._extras import import_extra
from trireme.data._datasource import DecodedFiles
from trireme.data._file_source import ReadFilesOptions, read_files
from trireme.data._fragment import DataError
from trireme.data._memory import rows_of_batch
from trireme.data._paths import File
from trireme.data._tensors import fixed_tensors, ragged_tensors

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

_AUDIO = ("wav", "flac", "ogg", "mp3", "aiff", "au", "caf", "opus")
_VIDEO = ("mp4", "mkv", "mov", "avi", "wmv", "flv", "webm", "m4v", "3gp", "mpeg", "mpg")


def read_audio(paths: Any, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """Audio files, one row each: "amplitude", a float32 array [channels, samples], and "sample_rate".

    Needs trireme[audio]."""
    import_extra("read_audio", "soundfile", "audio")
    return read_files(
        "read_audio",
        paths,
        lambda listing, on_bad_file: AudioSource(listing, on_bad_file, decode_audio),
        options,
        extensions=_AUDIO,
    )


_AUDIO_SCHEMA = pa.schema(
    [("amplitude", ragged_tensors([np.zeros((1, 1), np.float32)]).type), ("sample_rate", pa.int64())]
)


class AudioSource(DecodedFiles):
    def _infer(self, file: File) -> pa.Schema:
        return _AUDIO_SCHEMA  # recordings have different lengths


def decode_audio(file: File) -> Iterator[pa.RecordBatch]:
    soundfile = import_extra("read_audio", "soundfile", "audio")
    try:
        amplitude, rate = soundfile.read(io.BytesIO(file.read_raw()), always_2d=True, dtype="float32")
    except soundfile.SoundFileError as error:
        raise DataError(f"{file.shown} is not a readable audio file: {error}") from error
    column = ragged_tensors([np.ascontiguousarray(amplitude.T)])
    yield pa.RecordBatch.from_arrays([column, pa.array([rate], pa.int64())], schema=_AUDIO_SCHEMA)


def read_videos(paths: Any, *, include_timestamps: bool = False, **options: Unpack[ReadFilesOptions]) -> Dataset:
    """Video files, one row per frame: "frame", an array [height, width, 3] of uint8, and "frame_index".

    include_timestamps: also "frame_timestamp", in seconds. A fragment is a file. Needs trireme[video]."""
    import_extra("read_videos", "av", "video")
    return read_files(
        "read_videos",
        paths,
        lambda listing, on_bad_file: DecodedFiles(listing, on_bad_file, DecodeVideo(include_timestamps)),
        options,
        extensions=_VIDEO,
    )


@dataclass(frozen=True)
class DecodeVideo:
    timestamps: bool

    def __call__(self, file: File) -> Iterator[pa.RecordBatch]:
        av = import_extra("read_videos", "av", "video")
        try:
            with file.open_file() as handle, av.open(handle) as video:
                if not video.streams.video:
                    raise DataError(f"{file.shown} has no video stream")
                yield from self._batches(video.decode(video=0))
        except av.FFmpegError as error:
            raise DataError(f"{file.shown} is not a readable video file: {error}") from error

    def _batches(self, frames: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        held: list[np.ndarray] = []
        times: list[float | None] = []
        first = 0
        for frame in frames:
            held.append(frame.to_ndarray(format="rgb24"))
            times.append(frame.time)
            if len(held) >= rows_of_batch(held[0].nbytes):
                yield self._batch(held, times, first)
                first += len(held)
                held, times = [], []
        if held:
            yield self._batch(held, times, first)

    def _batch(self, frames: list[np.ndarray], times: list[float | None], first: int) -> pa.RecordBatch:
        columns = {
            "frame": fixed_tensors(np.stack(frames)),
            "frame_index": pa.array(range(first, first + len(frames)), pa.int64()),
        }
        if self.timestamps:
            columns["frame_timestamp"] = pa.array(times, pa.float64())
        return pa.RecordBatch.from_pydict(columns)
