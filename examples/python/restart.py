"""A worker is killed, and the run resumes from the newest checkpoint."""

import json
import os
import signal
import tempfile
from pathlib import Path

import trireme
from trireme import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, collective


def train(config):
    rank = trireme.get_context().get_world_rank()
    state = {"step": 0, "total": 0}
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
        print(f"resuming from step {state['step']}")
    begun_at = state["step"]
    while state["step"] < config["steps"]:
        state = {"step": state["step"] + 1, "total": state["total"] + state["step"] + 1}
        if state["step"] == config["dies_at"] and rank == 1 and begun_at == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # as the out-of-memory killer does
        metrics = {"step": state["step"], "total": state["total"]}
        if rank == 0:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "state.json").write_text(json.dumps(state))
                trireme.report(metrics, checkpoint=Checkpoint.from_directory(folder))
        else:
            trireme.report(metrics)
        collective.barrier()
    return begun_at


if __name__ == "__main__":
    result = DataParallelTrainer(
        train,
        train_loop_config={"steps": 6, "dies_at": 4},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="restart", failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"total {result.metrics['total']}, the last attempt began at step {result.return_value}")
