"""A parameter server: asynchronous workers as actors, a placement group, and the same with the workers of a trainer."""

import numpy as np
import ray
import ray.train
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

SIZE = 20_000


@ray.remote
class ParameterServer:
    def __init__(self, rate):
        self.rate = rate
        self.weights = np.zeros(SIZE)
        self.updates = 0

    def apply_gradients(self, *gradients):
        self.weights = self.weights - self.rate * np.sum(gradients, axis=0)
        self.updates += 1
        return self.weights

    def get_weights(self):
        return self.weights

    def get_updates(self):
        return self.updates


@ray.remote
class Worker:
    def __init__(self, target):
        self.target = target

    def compute_gradients(self, weights):
        assert not weights.flags.writeable  # an argument in shared memory
        return weights - self.target


@ray.remote(num_cpus=1, max_retries=0)
def evaluate(weights):
    return float(np.abs(weights).mean())


def train_func(config):
    server = config["server"]
    rank = ray.train.get_context().get_world_rank()
    for step in range(3):
        weights = ray.get(server.get_weights.remote())
        ray.get(server.apply_gradients.remote((weights - rank) / 10))
        ray.train.report({"step": step, "size": len(weights)})
    return ray.get(server.get_updates.remote()) >= 3


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
    ray.get(group.ready(), timeout=60)
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
    server = ParameterServer.options(scheduling_strategy=strategy, num_cpus=1).remote(0.1)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    workers = [Worker.options(scheduling_strategy=here, num_cpus=0).remote(value) for value in (1.0, 3.0)]
    weights = server.get_weights.remote()
    for _ in range(20):  # synchronous: references go from actor to actor
        gradients = [worker.compute_gradients.remote(weights) for worker in workers]
        weights = server.apply_gradients.remote(*gradients)
    synchronous = ray.get(evaluate.remote(weights))
    weights = ray.get(server.get_weights.remote())
    pending = {worker.compute_gradients.remote(weights): worker for worker in workers}
    applied = 0
    while applied < 6:  # asynchronous: whichever is ready
        ready, _ = ray.wait(list(pending))
        worker = pending.pop(ready[0])
        weights = server.apply_gradients.remote(ready[0])
        pending[worker.compute_gradients.remote(weights)] = worker
        applied += 1
    updates = ray.get(server.get_updates.remote())
    result = DataParallelTrainer(
        train_func,
        train_loop_config={"server": server},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="parameter_server", storage_path=STORAGE),
    ).fit()
    total = ray.get(server.get_updates.remote())
    specs = group.bundle_specs
    remove_placement_group(group)
    ray.kill(server)  # other scripts follow in this driver
    record(
        synchronous=synchronous,
        updates=updates,
        total=total,
        result=described(result),
        bundles=[bundle["CPU"] for bundle in specs],
        count=group.bundle_count,
    )
