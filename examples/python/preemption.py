"""A worker is about to be preempted: all ranks are notified, save a last checkpoint, and the run resumes from it."""

import os
import signal
import time

import trireme
from trireme import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig


def train(config):
    rank = trireme.get_context().get_world_rank()
    checkpoint = trireme.get_checkpoint()
    state = checkpoint.to_dict() if checkpoint else {"step": 0}
    began_at = state["step"]
    while state["step"] < config["steps"]:
        state["step"] += 1
        if state["step"] == 5 and rank == 1 and began_at == 0:
            os.kill(os.getpid(), signal.SIGTERM)  # as a scheduler does
        # Call it on every rank; all ranks get the same answer.
        info = trireme.get_preemption_info()
        if info is not None:
            if rank == 0:
                seconds = info.deadline_ms / 1000 - time.time()
                print(f"ranks {info.preempted_ranks} stop in {seconds:.0f} s: saving step {state['step']}")
            trireme.report(state, checkpoint=Checkpoint.from_dict(state) if rank == 0 else None)
        else:
            trireme.report(state)
        time.sleep(0.05)
    return began_at


if __name__ == "__main__":
    result = DataParallelTrainer(
        train,
        train_loop_config={"steps": 20},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="preemption"),
    ).fit()
    print(f"finished step {result.metrics['step']}; the last attempt resumed from step {result.return_value}")
