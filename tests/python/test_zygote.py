"""The warm process on its own, with the driver's protocol."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import processes
from cpp_programs import BUILD
from trireme import _giving_way


class Driver:
    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "trireme._zygote"), **env: str) -> None:
        self.sock, theirs = socket.socketpair()
        environment = {**os.environ, **env, "TRIREME_ZYGOTE_FD": str(theirs.fileno())}
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.sock.settimeout(60)

    def send(self, message: dict[str, Any], *fds: int) -> None:
        body = json.dumps(message).encode()
        socket.send_fds(self.sock, [struct.pack(">I", len(body)) + body], list(fds))

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        header, fds, _, _ = socket.recv_fds(self.sock, 4, 4)
        (length,) = struct.unpack(">I", header)
        body = b""
        while len(body) < length:
            body += self.sock.recv(length - len(body))
        return json.loads(body), fds

    def preload(self, *modules: str, **more: Any) -> dict[str, Any]:
        self.send({"op": "preload", "modules": list(modules), **more})
        return self.receive()[0]

    def fork(self, log: Path, ticket: str = "no ticket", **changes: Any) -> dict[str, Any]:
        request = {"op": "fork", "id": 7, "env": dict(os.environ), "cwd": "/", "sys_path": [], "argv": []}
        fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.send({**request, "ticket": ticket, **changes}, fd)
        os.close(fd)
        answer, fds = self.receive()
        answer["fds"] = fds
        return answer


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    assert made.receive()[0] == {"op": "ready", "pid": made.process.pid}
    yield made
    made.sock.close()
    assert made.process.wait(60) == 0


def test_preload_tells_what_failed(driver: Driver) -> None:
    answer = driver.preload("decimal", "no_such_module")
    assert answer["modules"] == ["decimal"]
    assert answer["failed"] == {"no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert answer["threads"] == 1


BROKEN = {
    "broken/__init__.py": "import broken.part\nraise ValueError('midway')\n",
    "broken/part.py": "",
    "ends.py": "import sys\nsys.exit(3)\n",
    "needs_more.py": "import no_such_module\n",
    "whole.py": "",
}


def write_modules(folder: Path) -> None:
    for name, source in BROKEN.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("broken", "ValueError: midway"),
        ("ends", "SystemExit: 3"),
        ("needs_more", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_an_import_that_failed_midway_is_not_inherited(driver: Driver, tmp_path: Path, module: str, why: str) -> None:
    """The process restarts with a new interpreter, without that module; its workers stay its children."""
    write_modules(tmp_path)
    assert driver.preload("decimal")["modules"] == ["decimal"]
    first = driver.fork(tmp_path / "first")
    assert first["op"] == "forked"
    driver.send({"op": "preload", "modules": [module, "whole"], "sys_path": [str(tmp_path)]})
    answers = [driver.receive()[0] for _ in range(4)]
    told = {answer["op"]: answer for answer in answers}
    assert told["replacing"] == {"op": "replacing", "module": module, "why": f"its import failed midway: {why}"}
    assert told["preloaded"]["modules"] == ["decimal", "whole"]
    assert told["preloaded"]["failed"] == {module: why}
    assert told["ready"]["pid"] == driver.process.pid
    assert told["exit"]["pid"] == first["pid"], "the earlier worker is still reaped"
    assert [op for op in told if op != "exit"] == ["replacing", "preloaded", "ready"]
    modules = tmp_path / "modules"
    (tmp_path / "shows_modules.py").write_text(
        f"import sys\nopen({str(modules)!r}, 'w').write(' '.join(sys.modules))\n"
    )
    driver.preload("shows_modules")
    seen = modules.read_text().split()
    assert "whole" in seen and "decimal" in seen
    assert not {"broken", "broken.part", "ends", "needs_more"} & set(seen)


def test_an_idle_import_that_fails_restarts_the_warm_process(tmp_path: Path) -> None:
    write_modules(tmp_path)
    code = (
        "from trireme import _zygote\n"
        "_zygote.LATER = {'decimal': ('no_such_module', 'broken', 'whole')}\n"
        "_zygote._IDLE_MS = 0\n"
        "_zygote.main()\n"
    )
    (tmp_path / "zygote.py").write_text(code)
    driver = Driver([sys.executable, str(tmp_path / "zygote.py")])
    driver.receive()
    assert driver.preload("decimal")["failed"] == {}
    assert driver.fork(tmp_path / "log")["op"] == "forked"  # it is idle only then
    told = [driver.receive()[0] for _ in range(3)]
    assert [answer["op"] for answer in told if answer["op"] != "exit"] == ["replacing", "ready"]
    (replacing,) = (answer for answer in told if answer["op"] == "replacing")
    assert (replacing["module"], replacing["why"]) == ("broken", "its import failed midway: ValueError: midway")
    answer = driver.preload("json")
    assert answer["failed"].keys() == {"no_such_module", "broken"}
    driver.sock.close()
    assert driver.process.wait(60) == 0


def test_preload_from_folders_of_the_driver(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "module_of_the_script.py").write_text("")
    assert driver.preload("module_of_the_script", sys_path=[str(tmp_path)])["failed"] == {}


def test_forked_process_has_its_own_session_log_and_environment(driver: Driver, tmp_path: Path) -> None:
    """An invalid ticket: the worker logs an error and exits."""
    log = tmp_path / "log"
    answer = driver.fork(log, env={**os.environ, "MARK": "x"})
    assert (answer["op"], answer["id"]) == ("forked", 7)
    assert len(answer["fds"]) == 1
    signal.pidfd_send_signal(answer["fds"][0], 0)
    exited, _ = driver.receive()
    assert (exited["op"], exited["pid"]) == ("exit", answer["pid"])
    assert os.waitstatus_to_exitcode(exited["status"]) == 1
    assert "Traceback" in log.read_text()
    os.close(answer["fds"][0])


THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


def test_a_module_that_starts_a_thread_is_not_inherited(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "starts_a_thread.py").write_text(THREAD)
    (tmp_path / "whole.py").write_text("import threading\nthreading.Thread(target=print).start()\n")
    driver.send({"op": "preload", "modules": ["starts_a_thread", "whole"], "sys_path": [str(tmp_path)]})
    replacing, preloaded, ready = (driver.receive()[0] for _ in range(3))
    assert (replacing["op"], replacing["module"]) == ("replacing", "starts_a_thread")
    assert replacing["why"].startswith("its import started a thread")
    assert (preloaded["modules"], preloaded["threads"]) == (["whole"], 1)
    assert ready["op"] == "ready"
    assert driver.fork(tmp_path / "log")["op"] == "forked"
    assert driver.receive()[0]["op"] == "exit"


def test_a_thread_that_starts_with_python_means_no_fork(tmp_path: Path) -> None:
    (tmp_path / "starts_a_thread.py").write_text(THREAD)
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    code = f"{path}; import starts_a_thread; from trireme._zygote import main; main()"
    driver = Driver([sys.executable, "-c", code])
    driver.receive()
    assert driver.preload("decimal")["modules"] == ["decimal"], "it is not the module's fault"
    answer = driver.fork(tmp_path / "log")
    assert (answer["op"], answer["id"]) == ("refused", 7)
    assert "2 threads" in answer["why"]
    driver.sock.close()
    assert driver.process.wait(60) == 0


def test_an_attribute_that_a_package_loads_on_first_use(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(
        "def __getattr__(name):\n    if name != 'Part':\n        raise AttributeError(name)\n"
        "    from lazy.inner import Part\n    return Part\n"
    )
    (tmp_path / "lazy" / "inner.py").write_text("Part = 1\n")
    told = driver.preload("lazy", "lazy.Part", "lazy.Other", sys_path=[str(tmp_path)])
    assert told["modules"] == ["lazy", "lazy.Part"]
    assert list(told["failed"]) == ["lazy.Other"]


FAKE_CUDA = BUILD / "tests/fake_driver/libcuda.so.1"
needs_fake_cuda = pytest.mark.skipif(not FAKE_CUDA.exists(), reason=f"{FAKE_CUDA} is not built: run `make build` first")
CUDA_MODULES = {
    "maps_cuda.py": f"import ctypes\nlibrary = ctypes.CDLL({str(FAKE_CUDA)!r})\n",
    "initializes_cuda.py": "import maps_cuda\nassert maps_cuda.library.cuInit(0) == 0\n",
    "whole.py": "",
}


def write_cuda_modules(folder: Path) -> str:
    for name, source in CUDA_MODULES.items():
        (folder / name).write_text(source)
    return str(folder)


@needs_fake_cuda
def test_a_module_that_initializes_cuda_is_not_inherited(driver: Driver, tmp_path: Path) -> None:
    """CUDA does not work after a fork. Loading its library is harmless."""
    folder = write_cuda_modules(tmp_path)
    assert driver.preload("maps_cuda", sys_path=[folder])["failed"] == {}
    first = driver.fork(tmp_path / "log")
    assert first["op"] == "forked"
    assert driver.receive()[0]["op"] == "exit"
    driver.send({"op": "preload", "modules": ["initializes_cuda", "whole"], "sys_path": [folder]})
    replacing, preloaded, ready = (driver.receive()[0] for _ in range(3))
    assert (replacing["op"], replacing["module"]) == ("replacing", "initializes_cuda")
    assert replacing["why"].startswith("its import initialized CUDA")
    assert preloaded["modules"] == ["maps_cuda", "whole"]
    assert list(preloaded["failed"]) == ["initializes_cuda"]
    assert ready["op"] == "ready"
    assert driver.fork(tmp_path / "log")["op"] == "forked"
    assert driver.receive()[0]["op"] == "exit"


@needs_fake_cuda
def test_cuda_that_is_initialized_before_any_import_means_no_fork(tmp_path: Path) -> None:
    folder = write_cuda_modules(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); import initializes_cuda; from trireme._zygote import main; main()"
    )
    driver = Driver([sys.executable, "-c", code])
    driver.receive()
    assert driver.preload("whole")["modules"] == ["whole"], "it is not the module's fault"
    answer = driver.fork(tmp_path / "log")
    assert (answer["op"], answer["id"]) == ("refused", 7)
    assert "CUDA is initialized when Python starts" in answer["why"]
    driver.sock.close()
    assert driver.process.wait(60) == 0


def test_a_module_that_initializes_rocm_is_not_inherited(driver: Driver, tmp_path: Path) -> None:
    device = tmp_path / "kfd"
    device.touch()
    (tmp_path / "knows_the_device.py").write_text(
        f"from trireme import _gpu_drivers\n_gpu_drivers._ROCM_DEVICE = {str(device)!r}\n"
    )
    (tmp_path / "initializes_rocm.py").write_text(f"file = open({str(device)!r}, 'rb')\n")
    preloaded = driver.preload("knows_the_device", sys_path=[str(tmp_path)])
    assert preloaded["failed"] == {}
    driver.send({"op": "preload", "modules": ["initializes_rocm"], "sys_path": [str(tmp_path)]})
    replacing, preloaded, ready = (driver.receive()[0] for _ in range(3))
    assert (replacing["op"], replacing["module"]) == ("replacing", "initializes_rocm")
    assert replacing["why"].startswith("its import initialized ROCm")
    assert preloaded["modules"] == ["knows_the_device"]
    assert ready["op"] == "ready"
    assert driver.fork(tmp_path / "log")["op"] == "forked"
    assert driver.receive()[0]["op"] == "exit"


def test_settings_that_torch_reads_when_it_is_loaded_are_not_inherited(tmp_path: Path) -> None:
    """For example the allocator of PYTORCH_CUDA_ALLOC_CONF. Such a worker starts in a new interpreter."""
    (tmp_path / "torch.py").write_text("def set_num_threads(number): pass\n")
    code = "from trireme import _zygote\n_zygote.LATER = {}\n_zygote.main()"
    driver = Driver([sys.executable, "-c", code], PYTORCH_X="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
    driver.receive()
    assert driver.preload("torch", sys_path=[str(tmp_path)])["failed"] == {}

    def forked(name: str, **env: str) -> bool:
        """Whether the worker, which fails because of its ticket, ran in a copy of the process."""
        log = tmp_path / name
        driver.fork(log, env={**os.environ, "PYTHONPATH": str(tmp_path), **env})
        assert driver.receive()[0]["op"] == "exit"
        text = log.read_text()
        assert "Traceback" in text
        return "_zygote.py" in text

    assert forked("same", PYTORCH_X="1")
    assert forked("check", PYTORCH_X="1", PYTORCH_NVML_BASED_CUDA_CHECK="0")
    assert not forked("other", PYTORCH_X="2")
    assert not forked("none")
    driver.sock.close()
    assert driver.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_all_processes_of_a_job_are_not_for_it(driver: Driver, number: signal.Signals) -> None:
    """Ctrl-C, and the notice of a scheduler. The workers would end with it."""
    driver.process.send_signal(number)
    assert driver.preload("decimal")["failed"] == {}


def test_it_goes_when_the_socket_closes() -> None:
    driver = Driver()
    driver.receive()
    driver.sock.close()
    assert driver.process.wait(60) == 0


def test_it_goes_when_the_driver_is_killed() -> None:
    """The driver's end of the socket stays open in another process, for example in a child forked by the driver."""
    code = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_zygote import Driver
driver = Driver()
driver.receive()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    other = int(process.stdout.readline())
    process.kill()
    process.wait()
    gone = processes.wait_until(lambda: [p.pid for p in processes.left_over()] == [other])
    os.kill(other, signal.SIGKILL)
    assert gone, processes.left_over()


def test_idle_imports_give_way_to_training(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poll = select.poll()
        poll.register(ours, select.POLLIN)

        def work(runnable: int) -> float:
            """The share of time in which it had a CPU."""
            monkeypatch.setattr(_giving_way, "_runnable", lambda: runnable)
            began = time.monotonic()
            cpu = time.process_time()
            with _giving_way.giving_way(poll):
                while time.process_time() - cpu < 0.1:
                    sum(range(1000))
            return (time.process_time() - cpu) / (time.monotonic() - began)

        before = signal.getsignal(signal.SIGPROF)
        assert work(runnable=10_000) < 0.5
        theirs.send(b"!")  # a request for a worker
        began = time.monotonic()
        monkeypatch.setattr(_giving_way, "_WAY_MS", 100_000)
        work(runnable=10_000)
        assert time.monotonic() - began < 100
        assert signal.getsignal(signal.SIGPROF) == before
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert _giving_way._runnable() >= 1


def test_giving_way_raises_nothing_into_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer fires again while the handler waits: poll() must not be nested."""
    monkeypatch.setattr(_giving_way, "_runnable", lambda: 10_000)
    monkeypatch.setattr(_giving_way, "_WAY_MS", 200)
    monkeypatch.setattr(_giving_way, "_WORK_S", 1000.0)
    fired: list[int] = []

    def again(*_: object) -> None:
        fired.append(1)
        signal.raise_signal(signal.SIGPROF)

    before = signal.signal(signal.SIGALRM, again)
    try:
        with _giving_way.giving_way(select.poll()):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            signal.raise_signal(signal.SIGPROF)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert fired
