"""Local commands that represent a step or a job of the cluster: srun, salloc. They end with the adapter."""

from __future__ import annotations

import collections
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    # SIGTERM, because srun and salloc then end what they have started in the cluster.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def describe(returncode: int) -> str:
    """`exit code 3`, `signal SIGKILL (9)`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"signal {signal.Signals(-returncode).name} ({-returncode})"


class LocalCommand:
    """A running command. Start it on a thread that lives as long as the adapter: the kernel ends it with its thread.

    Every line that it prints is passed to `on_line`, and its end to `on_exit`, which gets a description and the last
    lines. Both are called from a thread of this command.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        on_exit: Callable[[int, list[str]], None],
        on_line: Callable[[str], None] | None = None,
        standard_input: str = "",
    ) -> None:
        self._last: collections.deque[str] = collections.deque(maxlen=5)
        self._on_line = on_line
        self._on_exit = on_exit
        self.ended = threading.Event()
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_end_with_parent,
            # Ctrl-C is for the driver, which decides what happens to its workers.
            process_group=0,
        )
        assert self.process.stdin is not None
        if standard_input:
            try:
                self.process.stdin.write(standard_input)
                self.process.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended already: on_exit reports why
        threading.Thread(target=self._follow, name=os.path.basename(argv[0]), daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text := line.strip():
                self._last.append(text)
                if self._on_line:
                    self._on_line(text)
        returncode = self.process.wait()
        self.ended.set()
        self._on_exit(returncode, list(self._last))

    def terminate(self) -> None:
        if not self.ended.is_set():
            self.process.terminate()

    def kill(self) -> None:
        if not self.ended.is_set():
            self.process.kill()
