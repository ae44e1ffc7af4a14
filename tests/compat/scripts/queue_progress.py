"""Progress of workers through a queue and an actor pool, collectives, tasks of tasks, a full queue."""

import os
import tempfile

import ray
import ray.train
import ray.train.collective
from compat_record import STORAGE, described, error_name, record
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer
from ray.util import ActorPool
from ray.util.queue import Empty, Full, Queue


class Progress(UserCallback):
    def __init__(self, queue):
        self.queue = queue

    def after_report(self, run_context, metrics, checkpoint):
        self.queue.put(["callback", [each["rank"] for each in metrics], checkpoint is not None])


@ray.remote(max_restarts=0)
class Scorer:
    def score(self, path):
        with open(os.path.join(path, "value")) as file:
            return int(file.read()) * 10


@ray.remote
def fan_out(count):
    return ray.get([leaf.remote(number) for number in range(count)])


@ray.remote
def leaf(number):
    return number + 1


def train_func(config):
    context = ray.train.get_context()
    rank = context.get_world_rank()
    start = ray.train.collective.broadcast_from_rank_zero({"start": 5} if rank == 0 else None)
    for step in range(2):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                with open(os.path.join(folder, "value"), "w") as file:
                    file.write(str(start["start"] + step))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"step": step, "rank": rank, "score": -step}, checkpoint=checkpoint)
        config["queue"].put(["worker", rank, step])
        ray.train.collective.barrier()


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    queue = Queue()
    result = TorchTrainer(
        train_func,
        train_loop_config={"queue": queue},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="queue_progress",
            storage_path=STORAGE,
            callbacks=[Progress(queue)],
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score"),
        ),
    ).fit()
    messages = sorted(map(str, queue.get_nowait_batch(queue.size())))
    pool = ActorPool([Scorer.remote() for _ in range(2)])
    paths = [checkpoint.path for checkpoint, _ in result.best_checkpoints]
    scores = list(pool.map(lambda actor, path: actor.score.remote(path), paths))
    small = Queue(maxsize=1)
    small.put("one")
    problems = []
    for ask in (lambda: small.put_nowait("two"), lambda: Queue().get_nowait(), lambda: Queue().get(timeout=0.1)):
        try:
            ask()
        except (Empty, Full) as error:
            problems.append(error_name(error))
    record(
        result=described(result),
        messages=messages,
        scores=scores,
        best=result.get_best_checkpoint("score", "max").path == paths[-1],
        nested=ray.get(fan_out.remote(3)),
        problems=problems,
        full=[small.full(), small.qsize()],
    )
