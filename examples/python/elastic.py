"""A run grows and shrinks with the capacity of the machine; no step is skipped or repeated."""

import threading
import time

import trireme
from trireme import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, UserCallback, collective

ITEMS = 12  # per step, divided among the workers


def train(config):
    context = trireme.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    checkpoint = trireme.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": 0, "sizes": []}
    if state["sizes"][-1:] != [size]:
        state["sizes"].append(size)
    while state["sizes"] != config["sizes"]:
        mine = sum(range(state["step"] * ITEMS + rank, (state["step"] + 1) * ITEMS, size))
        state["step"] += 1
        # To resize the gang, Trireme leaves the function here and calls it again with the new size.
        trireme.report({"sum": mine, "size": size}, checkpoint=Checkpoint.from_dict(state) if rank == 0 else None)
        collective.barrier()
        time.sleep(0.02)
    return state


class Watch(UserCallback):
    """Adds up the sums of all ranks and tracks the number of workers."""

    def __init__(self):
        self.total = 0
        self.news = threading.Condition()
        self.size = 0

    def after_report(self, run_context, metrics, checkpoint):
        with self.news:
            self.total += sum(each["sum"] for each in metrics)
            self.size = len(metrics)
            self.news.notify_all()

    def wait_for(self, size):
        with self.news:
            self.news.wait_for(lambda: self.size == size)


def change_capacity(watch):
    """Does the same as `trireme capacity --num-cpus 4` from another terminal."""
    watch.wait_for(2)
    trireme.set_capacity(num_cpus=4)
    watch.wait_for(4)
    trireme.set_capacity(num_cpus=1)


if __name__ == "__main__":
    trireme.init(num_cpus=2)
    watch = Watch()
    threading.Thread(target=change_capacity, args=(watch,), daemon=True).start()
    result = DataParallelTrainer(
        train,
        train_loop_config={"sizes": [2, 4, 1]},
        scaling_config=ScalingConfig(num_workers=(1, 4), trainer_resources={"CPU": 0}),
        run_config=RunConfig(name="elastic", callbacks=[watch]),
    ).fit()
    sizes, steps = result.return_value["sizes"], result.return_value["step"]
    exact = watch.total == sum(range(steps * ITEMS))
    print(f"workers {sizes}, the sum of all steps is {'exact' if exact else 'wrong'}")
