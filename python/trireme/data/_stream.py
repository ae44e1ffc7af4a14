"""Reading on the driver: a dataset's batches in order, with the next fragments read ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from trireme.data._fragment_slice import FragmentSlice, function_processes

# The number of fragments read at the same time, and of batches read ahead in each.
_FRAGMENTS_AHEAD = 3
_BATCHES_AHEAD = 2
_JOIN_SECONDS = 5.0


def stream(pieces: list[FragmentSlice], ahead: bool = True) -> Iterator[pa.RecordBatch]:
    """Without `ahead`, or if this process calls user functions, everything runs in the calling thread."""
    processes = function_processes(pieces)
    if not ahead or processes == 0:
        for piece in pieces:
            yield from _plain(piece)
        return
    at_once = max(processes or 0, _FRAGMENTS_AHEAD)
    rest = deque(pieces)
    running: deque[_Reader] = deque()
    try:
        while True:
            while rest and len(running) < at_once:
                running.append(_Reader(rest.popleft()))
            if not running:
                return
            yield from running[0].batches()
            running.popleft()
    finally:
        for reader in running:
            reader.stop()
        for reader in running:
            reader.join()


def _plain(piece: FragmentSlice) -> Iterator[pa.RecordBatch]:
    batches = piece.batches()[0]
    for batch in batches:
        if batch.num_rows:
            yield batch


class _Reader:
    """One fragment, in a thread."""

    def __init__(self, piece: FragmentSlice) -> None:
        self._piece = piece
        self._queue: queue.Queue[Any] = queue.Queue(_BATCHES_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trireme-read", daemon=True)
        self._thread.start()

    def batches(self) -> Iterator[pa.RecordBatch]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
        self._thread.join()

    def stop(self) -> None:
        """The thread ends after its current batch."""
        self._stopped.set()
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return

    def join(self) -> None:
        """With a timeout: a store that does not respond must not block Ctrl-C."""
        until = time.monotonic() + _JOIN_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            self.stop()
            self._thread.join(0.01)

    def _run(self) -> None:
        try:
            with closing(_plain(self._piece)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    if self._stopped.is_set():
                        return
                    self._queue.put(batch)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)
