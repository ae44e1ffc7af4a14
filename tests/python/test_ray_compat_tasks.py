"""ray.remote in compatibility mode: tasks and actors are processes of this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import processes

COMPAT = [sys.executable, "-m", "trireme.compat.ray"]

HEAD = """
import json, os, sys, time
import ray
import ray.exceptions, ray.util
told = {}

def error_of(ask):
    try:
        ask()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""
"""


@pytest.fixture
def run(script: Any) -> Any:
    def run(source: str) -> dict[str, Any]:
        done = script.run(HEAD + source + "\nprint('OUT ' + json.dumps(told))\n", command=COMPAT)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.rpartition("OUT ")[2])
        return found

    return run


def test_tasks(run: Any) -> None:
    told = run("""
import numpy as np

@ray.remote
def square(x):
    return x * x

@ray.remote(num_returns=2)
def pair(a, b=2):
    return a, b

@ray.remote(runtime_env={"env_vars": {"GIVEN": "yes"}}, num_cpus=0.5)
def where():
    return os.getpid(), os.environ["GIVEN"], ray.get_runtime_context().get_assigned_resources()

@ray.remote
def fails(text):
    raise KeyError(text)

@ray.remote
def outer(n):
    return sum(ray.get([square.remote(i) for i in range(n)]))

@ray.remote(max_retries=2)
def dies_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), 9)
    return "alive"

@ray.remote(max_retries=0)
def dies():
    os._exit(3)

@ray.remote(retry_exceptions=True, max_retries=2)
def fails_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        raise OSError("once")
    return "repeated"

ray.init(num_cpus=1)
big = np.arange(300_000)
stored = ray.put(big)
told["square"] = ray.get(square.remote(square.remote(2)))
told["pair"] = ray.get(pair.remote(1, b=3))
pid, given, resources = ray.get(where.remote())
told["where"] = [pid != os.getpid(), given, resources]
told["arrays"] = [int(ray.get(ref).sum()) for ref in (stored, square.remote(stored), square.remote(big))]
told["read only"] = not ray.get(stored).flags.writeable
told["failed"] = error_of(lambda: ray.get(fails.remote("this")))
told["failed argument"] = error_of(lambda: ray.get(square.remote(fails.remote("first"))))
told["nested, on one CPU"] = ray.get(outer.remote(4))
told["dies once"] = ray.get(dies_once.remote(os.path.join(sys.path[0], "died")))
told["dies"] = error_of(lambda: ray.get(dies.remote()))
told["repeated"] = ray.get(fails_once.remote(os.path.join(sys.path[0], "failed")))
told["direct"] = error_of(lambda: square(2))
told["too large"] = error_of(lambda: square.options(num_cpus=3).remote(1))
told["gpu"] = error_of(lambda: square.options(num_gpus=1))
told["option"] = error_of(lambda: square.options(num_cpu=1))
told["unpicklable"] = error_of(lambda: square.remote(__import__("threading").Lock()))
told["resources"] = ray.available_resources()["CPU"]
ray.shutdown()
told["after shutdown"] = ray.get(square.remote(5))
""")
    assert told["square"] == 16 and told["pair"] == [1, 3] and told["where"] == [True, "yes", {"CPU": 0.5}]
    total = sum(range(300_000))
    squares = sum(i * i for i in range(300_000))
    assert told["arrays"] == [total, squares, squares] and told["read only"]
    assert told["failed"].startswith("RayTaskError(KeyError): ") and "raise KeyError(text)" in told["failed"]
    assert "KeyError: 'first'" in told["failed argument"]
    assert told["nested, on one CPU"] == 14
    assert told["dies once"] == "alive" and told["repeated"] == "repeated"
    assert told["dies"] == "WorkerCrashedError: the process of task dies() exited with code 3"
    assert (
        told["direct"]
        == "TypeError: remote functions cannot be called directly: use square.remote() in place of square()"
    )
    assert "needs 3 CPU of 1" in told["too large"]
    assert told["gpu"].startswith("NotInTrireme: ray.remote(num_gpus=...)")
    assert "unknown option 'num_cpu'" in told["option"]
    assert told["unpicklable"].startswith("TypeError: an argument of this call cannot be sent to another process")
    assert told["resources"] == 1 and told["after shutdown"] == 25


def test_actors(run: Any) -> None:
    told = run("""
import asyncio

@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start
        self.pid = os.getpid()

    def add(self, amount=1):
        self.value += amount
        return self.value

    @ray.method(num_returns=2)
    def two(self):
        return self.value, self.pid

    def die(self):
        os._exit(1)

    def leave(self):
        ray.actor.exit_actor()

    def me(self):
        return ray.get_runtime_context().current_actor

@ray.remote
class Signal:
    def __init__(self):
        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()
        return "signalled"

    async def send(self):
        self.event.set()

@ray.remote
class Broken:
    def __init__(self):
        raise ValueError("cannot start")

    def ask(self):
        return 1

@ray.remote
def use(counter):
    return ray.get([counter.add.remote() for _ in range(50)])[-1]

import ray.actor
ray.init(num_cpus=4)
counter = Counter.remote(10)
told["order"] = ray.get([counter.add.remote() for _ in range(5)])
told["shared"] = sorted(ray.get([use.remote(counter), use.remote(counter)]))[-1]
value, pid = ray.get(counter.two.remote())
told["two"] = [value, pid != os.getpid()]
told["me"] = ray.get(counter.me.remote()) == counter

named = Counter.options(name="one").remote(1)
told["named"] = ray.get(ray.get_actor("one").add.remote())
told["taken"] = error_of(lambda: Counter.options(name="one").remote())
told["again"] = ray.get(Counter.options(name="one", get_if_exists=True).remote().add.remote())
told["unknown"] = error_of(lambda: ray.get_actor("two"))
told["names"] = ray.util.list_named_actors()

signal = Signal.remote()
waits = signal.wait.remote()
told["not yet"] = len(ray.wait([waits], timeout=0.05)[0])
ray.get(signal.send.remote())
told["signalled"] = ray.get(waits)

async def awaits():
    return await signal.wait.remote()

told["awaited"] = asyncio.run(awaits())
told["broken"] = error_of(lambda: ray.get(Broken.remote().ask.remote()))
told["no method"] = error_of(lambda: counter.subtract)
survivor = Counter.options(max_restarts=1).remote(5)
told["died"] = error_of(lambda: ray.get(survivor.die.remote()))
told["restarted"] = ray.get(survivor.add.remote())
ray.kill(survivor)
told["killed"] = error_of(lambda: ray.get(survivor.add.remote()))
ray.get(counter.leave.remote())
told["left"] = error_of(lambda: ray.get(counter.add.remote()))
""")
    assert told["order"] == [11, 12, 13, 14, 15]
    assert told["shared"] == 115 and told["two"] == [115, True] and told["me"]
    assert told["named"] == 2 and told["again"] == 3 and told["names"] == ["one"]
    assert told["taken"] == "ActorAlreadyExistsError: the name 'one' is taken by another actor"
    assert told["unknown"].startswith("ValueError: no actor is named 'two'")
    assert told["not yet"] == 0 and told["signalled"] == told["awaited"] == "signalled"
    assert "cannot start" in told["broken"] and told["broken"].startswith("ActorDiedError")
    assert (
        told["no method"]
        == "AttributeError: actor Counter has no method 'subtract' (methods: add, die, leave, me, two)"
    )
    assert "the process of actor Counter exited with code 1" in told["died"]
    assert told["restarted"] == 6
    assert told["killed"] == "ActorDiedError: the actor was killed with ray.kill()"
    assert told["left"].startswith("ActorDiedError")


def test_waits_cancels_queues_and_pools(run: Any) -> None:
    told = run("""
from ray.util import ActorPool, placement_group
from ray.util.queue import Empty, Full, Queue
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.metrics import Counter as Metric

@ray.remote(num_cpus=0)
def sleeps(seconds):
    time.sleep(seconds)
    return seconds

@ray.remote(num_cpus=0)
def spins():
    while True:
        pass

@ray.remote(num_cpus=1)
def queued():
    return "ran"

@ray.remote
class Doubler:
    def double(self, x):
        return 2 * x

ray.init(num_cpus=1)
forever, quick = sleeps.remote(600), sleeps.remote(0)
told["waited"] = [len(each) for each in ray.wait([forever, quick], num_returns=1)]
told["late"] = error_of(lambda: ray.get(forever, timeout=0.05))
ray.cancel(forever, force=True)
told["forced"] = error_of(lambda: ray.get(forever))
spinning = spins.remote()
told["spinning"] = len(ray.wait([spinning], timeout=0.5)[1])
ray.cancel(spinning)
told["interrupted"] = error_of(lambda: ray.get(spinning))
holds = sleeps.options(num_cpus=1).remote(600)
behind = queued.remote()
ray.cancel(behind)
told["cancelled in the queue"] = error_of(lambda: ray.get(behind))
ray.cancel(holds, force=True)

queue = Queue(maxsize=2)
queue.put(1)
queue.put_nowait(2)
told["full"] = [queue.full(), error_of(lambda: queue.put_nowait(3)), error_of(lambda: queue.put(3, timeout=0.05))]
told["items"] = [queue.get(), queue.get_nowait_batch(1), len(queue), error_of(lambda: queue.get(timeout=0.05))]
pool = ActorPool([Doubler.remote(), Doubler.remote()])
told["pool"] = list(pool.map(lambda actor, x: actor.double.remote(x), range(5)))
told["unordered"] = sorted(pool.map_unordered(lambda actor, x: actor.double.remote(x), range(5)))
group = placement_group([{"CPU": 1}])
told["group"] = [ray.get(group.ready()).bundle_specs, group.wait(1), error_of(lambda: placement_group([{"CPU": 2}]))]
strategy = PlacementGroupSchedulingStrategy(placement_group=group)
told["placed"] = ray.get(queued.options(scheduling_strategy=strategy).remote())
metric = Metric("steps", tag_keys=("rank",))
metric.inc(2, {"rank": "0"})
told["metric"] = list(metric.values.values())
""")
    assert told["waited"] == [1, 1] and told["late"].startswith("GetTimeoutError")
    assert told["forced"] == "TaskCancelledError: the task was cancelled"
    assert told["spinning"] == 1 and told["interrupted"] == "TaskCancelledError: spins() was cancelled"
    assert told["cancelled in the queue"].startswith("TaskCancelledError")
    assert told["full"] == [True, "Full: ", "Full: "] and told["items"] == [1, [2], 0, "Empty: "]
    assert told["pool"] == told["unordered"] == [0, 2, 4, 6, 8]
    assert told["group"][:2] == [[{"CPU": 1}], True] and "need 2 CPU" in told["group"][2]
    assert told["placed"] == "ran" and told["metric"] == [2]


def test_what_is_not_a_task_is_refused_by_name(run: Any) -> None:
    told = run("""
@ray.remote
def numbers():
    yield 1
    yield 2

@ray.remote
class Source:
    def numbers(self):
        yield 1

source = Source.options(name="source").remote()
told["generator"] = error_of(lambda: numbers.remote())
told["of an actor"] = error_of(lambda: source.numbers.remote())
told["graph"] = error_of(lambda: numbers.bind())
told["two values"] = ray.get(numbers.options(num_returns=2).remote())
told["unordered"] = sorted(ray.util.map_unordered(ray.remote(abs), [-1, 2, -3], backpressure_size=2))
told["initialized"] = ray.is_initialized()
""")
    assert "numbers(), a generator" in told["generator"] and "num_returns=N" in told["generator"]
    assert "numbers(), a generator" in told["of an actor"]
    assert ".remote()" in told["graph"] and told["graph"].startswith("NotInTrireme")
    assert told["two values"] == [1, 2]
    assert told["unordered"] == [1, 2, 3]
    assert told["initialized"], "the first task starts the session, as in Ray"


def test_no_process_outlives_a_killed_driver(script: Any, tmp_path: Path) -> None:
    process = script.start(
        HEAD
        + """
@ray.remote
class Idle:
    def pid(self):
        return os.getpid()

actor = Idle.remote()
print("PID", ray.get(actor.pid.remote()), flush=True)
time.sleep(600)
""",
        command=COMPAT,
    )
    pid = next(int(line.split()[1]) for line in process.stdout if line.startswith("PID"))
    process.kill()
    process.wait()
    assert processes.wait_until(lambda: not Path(f"/proc/{pid}").exists())
