"""ray.remote beside a trainer: a counter that the workers call, tasks, a queue, a named actor."""

import time

import ray
import ray.train
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util import ActorPool
from ray.util.queue import Queue


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    def fail(self):
        raise ValueError("from the actor")


@ray.remote
class AsyncSignal:
    def __init__(self):
        import asyncio

        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()
        return "set"

    async def send(self):
        self.event.set()


@ray.remote
def square(x):
    return x * x


@ray.remote(num_returns=2)
def both(a, b):
    return b, a


@ray.remote
def slow():
    time.sleep(600)


def train_func(config):
    counter = config["counter"]
    for _ in range(3):
        ray.get(counter.add.remote())
    config["queue"].put(ray.train.get_context().get_world_rank())
    named = ray.get_actor("named")
    return ray.get(named.add.remote(0)) >= 100


def error_of(ask):
    try:
        ask()
    except Exception as error:
        return [type(error).__name__ for _ in (0,)] + [isinstance(error, ValueError)]
    return None


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    counter = Counter.remote(0)
    named = Counter.options(name="named").remote(100)
    queue = Queue(maxsize=10)
    result = TorchTrainer(
        train_func,
        train_loop_config={"counter": counter, "queue": queue},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="tasks_and_actors", storage_path=STORAGE),
    ).fit()
    big = ray.put(list(range(100_000)))
    ready, waiting = ray.wait([square.remote(2), slow.remote()], num_returns=1, timeout=120)
    for ref in waiting:
        ray.cancel(ref, force=True)
    signal = AsyncSignal.remote()
    waits = signal.wait.remote()
    ray.get(signal.send.remote())
    first, second = both.remote(1, 2)
    pool = ActorPool([Counter.remote(10), Counter.remote(20)])
    killed = Counter.remote(0)
    ray.get(killed.add.remote())
    ray.kill(killed)
    try:
        ray.get(killed.add.remote(), timeout=60)
    except ray.exceptions.RayActorError:
        dead = "RayActorError"
    try:
        ray.get(slow.remote(), timeout=0.2)
    except ray.exceptions.GetTimeoutError:
        late = "GetTimeoutError"
    record(
        result=described(result),
        count=ray.get(counter.add.remote(0)),
        ranks=sorted([queue.get(), queue.get()]),
        empty=queue.empty(),
        squares=ray.get([square.remote(i) for i in range(4)]),
        chained=ray.get(square.remote(square.remote(3))),
        big=sum(ray.get(big)),
        ready=[ray.get(ref) for ref in ready],
        signal=ray.get(waits),
        returns=ray.get([first, second]),
        pool=sorted(pool.map(lambda actor, value: actor.add.remote(value), [1, 1])),
        error=error_of(lambda: ray.get(counter.fail.remote())),
        dead=dead,
        late=late,
    )
