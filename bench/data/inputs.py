"""The input files: the same for every variant, generated from fixed seeds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

IMAGE_BATCH = 32
COLUMNS = [f"c{i}" for i in range(10)]
SIDE = 224

_FILES = 5
_WORDS = 2000


def scaled(count: int) -> int:
    """BENCH_SIZE=0.1 makes all inputs smaller, for a quick look."""
    return int(count * float(os.environ.get("BENCH_SIZE", "1")))


ROWS = scaled(5_000_000)
IMAGES = scaled(1000)
TEXT_BYTES = scaled(200_000_000)


def make_inputs(folder: Path) -> None:
    make_numbers(folder / "numbers")
    make_images(folder / "images")
    make_text(folder / "text")


def make_numbers(folder: Path) -> None:
    """Written with pyarrow's defaults: snappy, row groups of up to a million rows."""
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(_FILES):
        table = pa.table({name: random.random(ROWS // _FILES, np.float32) for name in COLUMNS})
        pq.write_table(table, folder / f"{number}.parquet")


def make_images(folder: Path) -> None:
    """Smoothed coarse noise plus fine noise: files of about the size of photographs."""
    folder.mkdir()
    random = np.random.default_rng(2)
    for number in range(IMAGES):
        width, height = int(random.integers(460, 540)), int(random.integers(345, 405))
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8))
        smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
        noisy = smooth + random.integers(-12, 13, smooth.shape, np.int16)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05}.jpg", quality=90)


def make_text(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(3)
    words = np.array(["".join(map(chr, random.integers(97, 123, random.integers(2, 10)))) for _ in range(_WORDS)])
    lines = [" ".join(random.choice(words, random.integers(6, 24))) for _ in range(scaled(100_000))]
    block = "".join(f"{line}\n" for line in lines).encode()
    for number in range(_FILES):
        with (folder / f"{number}.txt").open("wb") as file:
            for _ in range(max(1, round(TEXT_BYTES / _FILES / len(block)))):
                file.write(block)


def link_many(folder: Path, copies: int) -> Path:
    """The numbers `copies` times, as hard links."""
    many = Path(tempfile.mkdtemp(prefix="many-", dir=folder))
    for copy in range(copies):
        for path in (folder / "numbers").iterdir():
            os.link(path, many / f"{copy}-{path.name}")
    return many
