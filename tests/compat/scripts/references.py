"""Values in shared memory, references in containers, named actors, resources and the runtime context."""

import asyncio

import numpy as np
import ray
from compat_record import record
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.queue import Empty, Queue
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
def total(array):
    return float(array.sum()), array.flags.writeable


@ray.remote
def in_list(refs):
    return [type(each).__name__ for each in refs], sum(ray.get(refs))


@ray.remote
def tree(depth):
    if depth == 0:
        return 1
    return sum(ray.get([tree.remote(depth - 1) for _ in range(2)]))


@ray.remote
def default(a, *rest, b=2, **more):
    return [a, list(rest), b, sorted(more)]


@ray.remote
class Store:
    def __init__(self, **values):
        self.values = values

    def set(self, name, value):
        self.values[name] = value

    def get(self, name, default=None):
        return self.values.get(name, default)

    @ray.method(num_returns=2)
    def both(self):
        return 1, 2

    def me(self):
        context = ray.get_runtime_context()
        return ray.get_actor("store") == context.current_actor, context.get_actor_name()


@ray.remote
class Asynchronous:
    async def slow(self, value):
        await asyncio.sleep(0.05)
        return value

    async def gathers(self, refs):
        return await asyncio.gather(*refs)


class Base:
    def __init__(self, **values):
        self.values = values


@ray.remote
class Child(Base):
    def size(self):
        return len(self.values)


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    array = np.arange(100_000.0)
    ref = ray.put(array)
    got = ray.get(ref)
    store = Store.options(name="store", num_cpus=0).remote(a=1)
    ray.get(store.set.remote("array", array))
    again = Store.options(name="store", get_if_exists=True).remote()
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
    ray.get(group.ready())
    placed = default.options(
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    ).remote(1)
    queue = Queue(maxsize=2)
    queue.put("a")
    queue.put_nowait("b")
    taken = [queue.get(), queue.get()]
    try:
        queue.get(timeout=0.1)
    except Empty:
        taken.append("empty")
    asynchronous = Asynchronous.remote()
    record(
        total=ray.get(total.remote(ref)),
        read_only=got.flags.writeable,
        equal=bool((got == array).all()),
        in_list=ray.get(in_list.remote([ray.put(1), ray.put(2)])),
        tree=ray.get(tree.remote(2)),
        arguments=ray.get(default.remote(1, 2, 3, b=4, c=5)),
        stored=[float(ray.get(again.get.remote("array")).sum()), ray.get(again.get.remote("x", 3))],
        both=ray.get(store.both.remote()),
        me=ray.get(store.me.remote()),
        placed=ray.get(placed),
        bundles=group.bundle_specs,
        taken=taken,
        concurrent=ray.get([asynchronous.slow.remote(index) for index in range(3)]),
        gathered=ray.get(asynchronous.gathers.remote([asynchronous.slow.remote(4)])),
        completed=sorted(ray.util.as_completed([default.remote(index) for index in range(2)])),
        child=ray.get(Child.remote(a=1, b=2).size.remote()),
        nodes=[len(ray.nodes()), ray.nodes()[0]["Alive"], ray.cluster_resources()["CPU"] >= 2],
        initialized=ray.is_initialized(),
        gpus=ray.get_gpu_ids(),
    )
    remove_placement_group(group)
