"""The training loop of all Python variants. It runs steps on request of the benchmark, see rotation.py."""

import os
import socket
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy

_BATCHES = 4


class Training:
    """A perceptron of these widths on random batches; bench/cpp/ddp.cpp has the same."""

    def __init__(self, widths: list[int], rank: int, prepare: Callable[[Module], Module]) -> None:
        torch.manual_seed(0)
        layers: list[Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [Linear(inputs, outputs), ReLU()]
        self.model = prepare(Sequential(*layers[:-1]))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        batch = int(os.environ["BENCH_BATCH"])
        torch.manual_seed(1 + rank)
        self.inputs = torch.randn(_BATCHES, batch, widths[0])
        self.targets = torch.randint(widths[-1], (_BATCHES, batch))
        self.steps = 0

    def step(self) -> torch.Tensor:
        batch = self.steps % _BATCHES
        self.steps += 1
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(self.inputs[batch]), self.targets[batch])
        loss.backward()
        self.optimizer.step()
        return loss


def serve(form: str, rank: int, prepare: Callable[[Module], Module]) -> None:
    torch.set_num_threads(1)
    networks = [[int(width) for width in network.split("-")] for network in os.environ["BENCH_NETWORKS"].split()]
    trainings = [Training(widths, rank, prepare) for widths in networks]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["BENCH_SOCKET"])
        with connection.makefile("r") as orders:
            connection.sendall(f"{form} {rank}\n".encode())
            for line in orders:
                network, steps = map(int, line.split())
                connection.sendall(block(trainings[network], steps).encode())


def block(training: Training, steps: int) -> str:
    """The last loss, the CPU nanoseconds of all steps, and the wall-clock nanoseconds of each."""
    began = time.process_time_ns()
    stamps = [time.perf_counter_ns()]
    for _ in range(steps):
        loss = training.step()
        stamps.append(time.perf_counter_ns())
    worked = time.process_time_ns() - began
    taken = [str(after - before) for before, after in pairwise(stamps)]
    return f"{loss.item()} {worked} {' '.join(taken)}\n"
