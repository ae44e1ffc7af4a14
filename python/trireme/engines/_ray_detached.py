"""Detached scripts on Ray: each runs in a detached actor, which Ray starts again on another node if its node dies."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from trireme.engines._ray_actors import tied_to_this_process
from trireme.engines.adapter import Refused

_PREFIX = "trireme-driver-"
_KEEP_S = 24 * 3600.0  # after its end, a script can be looked at for so long
_POLL_S = 1.0


class DriverHost:
    """The actor. It runs a script, and commands beside it."""

    def __init__(self, job: str, words: list[str], variables: dict[str, str], cwd: str, options: dict[str, Any]):
        import ray

        self._key = f"{_PREFIX}{job}"
        self._script: subprocess.Popen[bytes] | None = None
        self._commands: dict[str, subprocess.Popen[bytes]] = {}
        self._since = time.strftime("%Y-%m-%d %H:%M:%S")
        self._host = os.uname().nodename
        # Runs of other scripts are not in this folder, so that commands need no name of a run.
        self._folder = Path(tempfile.mkdtemp(prefix="trireme-driver-"))
        shipped = "working_dir" in (options.get("runtime_env") or {})  # then this process is in it
        if not shipped and not os.path.isdir(cwd):
            raise FileNotFoundError(
                f"node {self._host} has no folder {cwd}: use a shared file system, or the engine option "
                'runtime_env={"working_dir": "."}'
            )
        if not shipped:
            os.chdir(cwd)
        options = {**options, "address": ray.get_runtime_context().gcs_address}
        self._env = {
            **os.environ,
            **variables,
            "TRIREME_STATE_DIR": str(self._folder / "state"),
            "TRIREME_RUN_ENGINE": "ray",
            "TRIREME_RUN_ENGINE_OPTIONS": json.dumps(options),
        }
        self._output = self._folder / "output.log"
        # After a restart of this actor, only a script that had not ended starts again.
        self._code = _recorded_end(self._key)
        if self._code is None:
            threading.Thread(target=self._run, args=(words,), daemon=True).start()

    def _run(self, words: list[str]) -> None:
        with self._output.open("ab") as output:
            self._script = subprocess.Popen(
                tied_to_this_process([sys.executable, *words]),
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            self._code = self._script.wait()  # the kernel ends the script with this thread
        _record_end(self._key, self._code)
        time.sleep(_KEEP_S)
        self.forget()

    def state(self) -> str:
        if self._code is None:
            return f"running on {self._host} since {self._since}"
        how = f"exit code {self._code}" if self._code >= 0 else f"signal {signal.Signals(-self._code).name}"
        return f"ended on {self._host} with {how}"

    def ended(self) -> bool:
        return self._code is not None

    def interrupt(self, hard: bool) -> None:
        if self._script:
            self._script.send_signal(signal.SIGKILL if hard else signal.SIGINT)

    def forget(self) -> None:
        """Ends this actor for good."""
        import ray

        _forget_end(self._key)
        shutil.rmtree(self._folder, ignore_errors=True)
        ray.kill(ray.get_actor(self._key), no_restart=True)

    def begin(self, words: list[str]) -> str:
        """Starts `trireme WORDS`. read() returns its output."""
        command = secrets.token_hex(4)
        process = subprocess.Popen(
            tied_to_this_process([sys.executable, "-m", "trireme._cli", *words]),
            env={name: value for name, value in self._env.items() if not name.startswith("TRIREME_RUN_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        self._commands[command] = process
        return command

    def read(self, command: str) -> tuple[bytes, int | None]:
        """Its next output, and its exit code if there is no more."""
        process = self._commands[command]
        assert process.stdout
        deadline = time.monotonic() + _POLL_S
        while True:
            code = process.poll()
            if output := process.stdout.read(1 << 20):
                return output, None
            if code is not None:
                del self._commands[command]
                return b"", code
            if time.monotonic() > deadline:
                return b"", None
            time.sleep(0.02)

    def end_command(self, command: str) -> None:
        if process := self._commands.pop(command, None):
            process.terminate()
            process.wait()


# Ray's own key-value store outlives this actor, and with Redis its head too.
def _recorded_end(key: str) -> int | None:
    from ray.experimental.internal_kv import _internal_kv_get

    value = _internal_kv_get(key)
    return int(value) if value else None


def _record_end(key: str, code: int) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, str(code))


def _forget_end(key: str) -> None:
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key)


class RayDetached:
    def __init__(self, options: dict[str, Any]) -> None:
        from trireme.engines.ray import connect

        self._options = options
        if not (options.get("argument") or options.get("address") or os.environ.get("RAY_ADDRESS")):
            options["address"] = "auto"  # a Ray that this command starts would end with it
        self._ray = connect(options)

    def start(self, words: list[str], variables: dict[str, str]) -> str:
        job = secrets.token_hex(3)
        actor = (
            self._ray.remote(DriverHost)
            .options(
                name=_PREFIX + job,
                lifetime="detached",
                num_cpus=0,
                resources=self._options.get("driver_resources"),
                max_restarts=-1,
                max_concurrency=16,
            )
            .remote(job, words, variables, os.getcwd(), self._options)
        )
        try:
            self._ray.get(actor.state.remote())
        except self._ray.exceptions.RayError as error:
            raise Refused(f"the driver could not be started: {_cause(error)}") from None
        return job

    def _actor(self, job: str) -> Any:
        return self._ray.get_actor(_PREFIX + job)

    def jobs(self) -> dict[str, str]:
        from ray.util import list_named_actors

        names = [name.removeprefix(_PREFIX) for name in list_named_actors() if name.startswith(_PREFIX)]
        return {job: self._state(job) for job in sorted(names)}

    def _state(self, job: str) -> str:
        try:
            return str(self._ray.get(self._actor(job).state.remote(), timeout=10))
        except (self._ray.exceptions.RayError, ValueError) as error:
            return f"does not answer ({_cause(error)}); Ray starts it again if its node has died"

    def command(self, job: str, words: list[str]) -> int:
        actor = self._actor(job)
        try:
            running = self._ray.get(actor.begin.remote(words))
            try:
                code = None
                while code is None:
                    output, code = self._ray.get(actor.read.remote(running))
                    sys.stdout.buffer.write(output)
                    sys.stdout.flush()
            except (KeyboardInterrupt, BrokenPipeError):
                self._ray.get(actor.end_command.remote(running))
                return 130
        except self._ray.exceptions.RayError as error:
            raise Refused(f"job {job} does not answer: {_cause(error)}") from None
        return int(code)

    def interrupt(self, job: str, *, hard: bool) -> str:
        actor = self._actor(job)
        if not self._ray.get(actor.ended.remote()):
            self._ray.get(actor.interrupt.remote(hard))
            return f"job {job} was {'killed' if hard else 'interrupted'}; stop it again to forget it"
        with contextlib.suppress(self._ray.exceptions.RayActorError):  # it ends itself
            self._ray.get(actor.forget.remote())
        return f"job {job} is forgotten"


def _cause(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
