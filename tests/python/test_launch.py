"""`trireme launch`: ordinary torchrun scripts as workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from runs import ranks_that_printed

PROGRAM = [os.environ["TRIREME_CLI"]] if "TRIREME_CLI" in os.environ else [sys.executable, "-m", "trireme._cli"]


class Folder:
    """The user's working directory: scripts, and the files that they write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[str]] = []
        path.mkdir()

    def write(self, name: str, source: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, *words: str, **variables: str | None) -> subprocess.Popen[str]:
        """variables: None removes a variable."""
        command = [*PROGRAM, *words]
        merged = {**os.environ, "TRIREME_PYTHON": sys.executable, **variables}
        env = {name: text for name, text in merged.items() if text is not None}
        process = subprocess.Popen(
            command, cwd=self.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def launch(self, *words: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
        process = self.start("launch", *words, **variables)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def told(self, count: int) -> list[Any]:
        """The content of each rank's file."""
        return [json.loads((self.path / f"{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "user")
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


TELL = """
    def tell(**what):
        import json, os, pathlib
        draft = pathlib.Path(os.environ["RANK"] + ".draft")
        draft.write_text(json.dumps(what))
        draft.rename(os.environ["RANK"] + ".json")
"""

PLACE = f"""
    import multiprocessing, os, pickle, sys
    import trireme
    {TELL}
    class Thing:
        pass

    def double(number):
        return 2 * number

    if __name__ == "__main__":
        assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            doubled = pool.map(double, [1, 2])
        tell(
            argv=sys.argv, file=__file__, first=sys.path[0], doubled=doubled, env=dict(os.environ), cwd=os.getcwd(),
            context=[trireme.get_context().get_world_rank(), trireme.get_context().get_world_size()],
        )
"""


def test_python_gets_all_options(folder: Folder) -> None:
    print_options = folder.write("print_options", '#!/bin/sh\nprintf %s "$3"\n')  # after -m trireme._launch
    print_options.chmod(0o755)
    folder.write("train.py", "")
    programs = (Path(place) / "bin/trireme" for place in trireme.__path__)
    program = os.environ.get("TRIREME_CLI") or next(path for path in programs if path.exists())

    def options(*words: str) -> Any:
        env = {**os.environ, "TRIREME_PYTHON": str(print_options)}
        launch = [program, "launch", *words, "train.py"]
        return json.loads(subprocess.run(launch, cwd=folder.path, env=env, check=True, capture_output=True).stdout)

    defaults = {
        "num_workers": "1",
        "module": False,
        "max_failures": 0,
        "num_to_keep": None,
        "name": None,
        "storage_path": None,
        "use_gpu": False,
        "gpus_per_worker": None,
        "cpus_per_worker": 1,
        "preload": [],
        "env": {},
    }
    assert options() == defaults
    words = "-n 2,4 --max-failures 3 --num-to-keep 2 --name a --storage-path b --use-gpu --gpus-per-worker 2"
    assert options(*words.split(), "--cpus-per-worker", "0.5", "--preload", "json", "--env", "A=b=c") == {
        "num_workers": "2,4",
        "module": False,
        "max_failures": 3,
        "num_to_keep": 2,
        "name": "a",
        "storage_path": "b",
        "use_gpu": True,
        "gpus_per_worker": 2,
        "cpus_per_worker": 0.5,
        "preload": ["json"],
        "env": {"A": "b=c"},
    }
    assert options("--nproc-per-node", "3", "--max-restarts=-1") == {**defaults, "num_workers": "3", "max_failures": -1}


def test_script_finds_what_torchrun_would_give_it(folder: Folder) -> None:
    script = folder.write("scripts/train.py", PLACE)
    words = ["--standalone", "--nnodes=1", "--nproc_per_node", "2", "--max-restarts", "3", "--env", "COLOUR=a=b"]
    arguments = ["-n", "7", "--", "--lr=0.1", "", "two words"]
    done = folder.launch(*words, "--cpus-per-worker", "2", "scripts/train.py", *arguments, OMP_NUM_THREADS="5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers running" in done.stdout
    ports = set()
    for rank, told in enumerate(folder.told(2)):
        assert told["argv"] == ["scripts/train.py", *arguments]
        assert (told["file"], told["first"], told["cwd"]) == (str(script), str(script.parent), str(folder.path))
        assert told["doubled"] == [2, 4]
        assert told["context"] == [rank, 2]
        expected = {
            "RANK": f"{rank}",
            "LOCAL_RANK": f"{rank}",
            "ROLE_RANK": f"{rank}",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "ROLE_WORLD_SIZE": "2",
            "ROLE_NAME": "default",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "3",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "GLOO_SOCKET_IFNAME": "lo",
            "COLOUR": "a=b",
            "OMP_NUM_THREADS": "5",
        }
        assert {name: told["env"][name] for name in expected} == expected
        assert told["env"]["TORCHELASTIC_RUN_ID"]
        ports.add(int(told["env"]["MASTER_PORT"]))
    assert len(ports) == 1


def test_module_and_threads(folder: Folder) -> None:
    folder.write("package/__init__.py", "")
    folder.write("package/train.py", PLACE)
    path = folder.path / "package/train.py"
    done = folder.launch("--cpus-per-worker", "2", "-m", "package.train", "--x", OMP_NUM_THREADS=None)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = folder.told(1)
    assert told["argv"] == [str(path), "--x"]
    assert (told["file"], told["first"], told["doubled"]) == (str(path), str(folder.path), [2, 4])
    assert told["env"]["OMP_NUM_THREADS"] == "2"


def test_gpus_are_numbered_for_cuda_local_rank(folder: Folder) -> None:
    folder.write("train.py", f"import os\n{textwrap.dedent(TELL)}\ntell(gpus=os.environ['CUDA_VISIBLE_DEVICES'])")
    done = folder.launch("-n", "gpu", "--num-gpus", "4", "--gpus-per-worker", "2", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [told["gpus"] for told in folder.told(2)] == ["0,2,1,3", "0,2,1,3"]


def test_gpus_are_those_of_the_mask(folder: Folder) -> None:
    folder.write("train.py", f"import os\n{textwrap.dedent(TELL)}\ntell(gpus=os.environ['CUDA_VISIBLE_DEVICES'])")
    words = ["-n", "gpu", "--num-gpus", "2", "train.py"]
    done = folder.launch(*words, CUDA_VISIBLE_DEVICES="6,4,5", HIP_VISIBLE_DEVICES=None, ROCR_VISIBLE_DEVICES=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [told["gpus"] for told in folder.told(2)] == ["6,4", "6,4"]


def test_workers_for_each_cpu(folder: Folder) -> None:
    folder.write("train.py", "print('here')")
    done = folder.launch("-n", "auto", "--num-cpus", "3", "--num-gpus", "0", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ranks_that_printed("here", done.stdout) == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "code", "printed"),
    [
        ("import sys\nsys.exit()", 0, "outcome   finished"),
        ("import sys\nsys.exit(3)", 1, 'train.py", line 2, in <module>'),
        ("import sys\nsys.exit(3)", 1, "rank 0 (pid {pid}) failed: SystemExit: the script ended with exit code 3\n"),
        ("import sys\nsys.exit('no data in /x')", 1, "failed: SystemExit: no data in /x\n"),
        ("import os\nos._exit(4)", 1, "exit code 4"),
        (
            "def f():\n    raise KeyError('lr')\nf()",
            1,
            "failed: KeyError: 'lr'\n\nTraceback (most recent call last):\n",
        ),
        ("class Mine(Exception): pass\nraise Mine('own')", 1, "failed: Mine: own"),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--x'])", 1, "unrecognized arguments: --x"),
        ("x = (", 1, "SyntaxError: '(' was never closed"),
    ],
    ids=["exit", "exit 3 where", "exit 3", "exit text", "os._exit", "exception", "own exception", "usage", "syntax"],
)
def test_how_a_script_ends(folder: Folder, source: str, code: int, printed: str) -> None:
    folder.write("train.py", source)
    done = folder.launch("train.py")
    assert done.returncode == code, done.stdout + done.stderr
    text = done.stderr if code else done.stdout
    before, _, after = printed.partition("{pid}")
    assert before in text and after in text, text
    assert "trireme/_" not in done.stderr  # no frame of ours in a traceback


REFUSED = [
    (["-n", "0", "train.py"], "'0' is not a number of workers"),
    (["-n", "four", "train.py"], "'four' is not a number of workers"),
    (["-n", "1,2,3", "train.py"], "use N (at least 1), MIN,MAX, or one of cpu, gpu, auto"),
    (["-n", "4,2", "train.py"], "the minimum is above the maximum"),
    (["-n", "gpu", "--num-gpus", "0", "train.py"], "this machine has 0 GPUs and a worker needs 1"),
    (["--max-failures", "-2", "train.py"], "at least -1"),
    (["--max-restarts", "often", "train.py"], "'often' must be an integer"),
    (["--num-to-keep", "0", "train.py"], "at least 1"),
    (["--gpus-per-worker", "0.5", "train.py"], "'0.5' must be an integer"),
    (["--cpus-per-worker", "0", "train.py"], "--cpus-per-worker"),
    (["--env", "COLOUR", "train.py"], "write NAME=VALUE"),
    (["--name", "a/b", "train.py"], "must be a plain folder name"),
    (["--nnodes", "2", "train.py"], "set the total number of workers with -n"),
    (["--rdzv_backend=c10d", "train.py"], "torchrun option --rdzv_backend=c10d: workers rendezvous over"),
    (["--rdzv-endpoint", "a:1", "train.py"], "leave it out"),
    (["--master_port", "29501", "train.py"], "need no port"),
    (["--log-dir", "x", "train.py"], "--storage-path"),
    (["--no-python", "program"], "trireme::init()"),
    (["--epochs", "3", "train.py"], "options for the script go after its name"),
    ([], "no script given"),
    (["none.py"], "script 'none.py' not found"),
    (["."], "is a folder"),
    (["-m", "train.py"], "leave out -m"),
    (["-m", "none.train"], "no module named 'none.train'"),
    (["-m", "json"], "without a __main__ module"),
    (["-n", "5", "--num-cpus", "2", "train.py"], "5 needed"),
    (["--use-gpu", "--num-gpus", "0", "train.py"], "none"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words) or "nothing" for words, _ in REFUSED])
def test_refused_before_anything_starts(folder: Folder, results: Path, words: list[str], said: str) -> None:
    folder.write("train.py", "print('ran')")
    done = folder.launch(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not results.exists() or not list(results.iterdir())


@pytest.mark.parametrize(("how", "code"), [("Ctrl-C", 130), ("trireme stop", 1)])
def test_stopped(folder: Folder, how: str, code: int) -> None:
    folder.write("train.py", f"import time\n{textwrap.dedent(TELL)}\ntell()\nwhile True: time.sleep(1)")
    process = folder.start("launch", "-n", "2", "--name", "endless", "train.py")
    assert processes.wait_until(lambda: all((folder.path / f"{rank}.json").exists() for rank in (0, 1)))
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        stop = folder.start("stop", "endless")
        assert stop.wait(timeout=120) == 0
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    assert "outcome   stopped" in out
    assert "Traceback" not in err


RESTARTED = """
    import os, signal, trireme
    from trireme import Checkpoint

    rank, count = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    print(f"attempt {count} of rank {rank} begins at step {first}, port {os.environ['MASTER_PORT']}", flush=True)
    for step in range(first, 5):
        mine = Checkpoint.from_dict({"step": step}) if rank == 0 else None
        trireme.report({"step": step}, checkpoint=mine)
        trireme.collective.barrier()
        if count == 0 and step == 2 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_resumes_from_its_checkpoint(folder: Folder, results: Path) -> None:
    folder.write("train.py", RESTARTED)
    words = ["-n", "2", "--max-failures", "1", "--name", "killed", "--num-to-keep", "2", "train.py"]
    done = folder.launch(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL" in done.stdout
    starts = [line for line in done.stdout.splitlines() if "begins at step" in line]
    ports = {line.rpartition("port ")[2] for line in starts}
    assert [line for line in starts if "attempt 0 of rank 0 begins at step 0" in line]
    assert [line for line in starts if "attempt 1 of rank 1 begins at step 3" in line]
    assert len(ports) == 2
    assert sorted(path.name for path in (results / "killed").glob("checkpoint_*")) == [
        "checkpoint_000003",
        "checkpoint_000004",
    ]


def test_runs_again_in_the_same_process(folder: Folder) -> None:
    """Like a worker that is kept for the next attempt."""
    script = folder.write("train.py", "import os, sys\nassert 'before' not in globals()\nbefore = 1\nos.chdir('/')")
    program = f"""
        import os, sys
        from trireme._main_script import run_as_main
        config = dict(script="train.py", is_module=False, arguments=["x"], folder={str(folder.path)!r})
        mains = []
        for _ in range(2):
            run_as_main(config)
            mains.append(sys.modules["__main__"])
        assert mains[0] is not mains[1] and mains[1].before == 1 and sys.argv == ["train.py", "x"]
        print(mains[1].__file__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(script), done.stderr


DDP = f"""
    import os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    {TELL}
    def main():
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        torch.manual_seed(0)
        inputs = torch.randn(64, 4)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        model = DDP(torch.nn.Linear(4, 1))
        sampler = DistributedSampler(data)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for some, expected in DataLoader(data, batch_size=8, sampler=sampler):
                loss = torch.nn.functional.mse_loss(model(some), expected)
                model.zero_grad()
                loss.backward()
                with torch.no_grad():  # torch.optim imports torch's compiler: 2 more seconds in every process
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
        total = loss.detach().clone()
        dist.all_reduce(total)
        weights = [parameter.tolist() for parameter in model.parameters()]
        tell(weights=weights, total=total.item(), rank=rank, elastic=dist.is_torchelastic_launched())
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_equals_torchrun(folder: Folder) -> None:
    script = folder.write("train.py", DDP)
    done = folder.launch("--standalone", "--nproc-per-node", "2", "train.py", TRIREME_RUN_PRELOAD=None)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = folder.told(2)
    for rank in range(2):
        (folder.path / f"{rank}.json").unlink()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run([*torchrun, str(script)], cwd=folder.path, env=env, check=True, capture_output=True, timeout=120)
    assert ours == folder.told(2)
    assert ours[0]["elastic"] and ours[0]["weights"] == ours[1]["weights"]


# The port is taken by a server that never answers; only code that uses it by name would notice.
RENDEZVOUS = f"""
    import os, socket, sys
    assert 'torch' not in sys.modules
    import network  # which imports torch: nothing in this text tells, so it is not imported before the script runs
    dist = network.torch.distributed
    {TELL}
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sums = []

    def add_up(**how):
        dist.init_process_group("gloo", **how)
        tensor = network.one()
        dist.all_reduce(tensor)
        sums.append(tensor.item())

    if rank == 0:
        taken = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    loader = sys.modules["torch.distributed.rendezvous"].__spec__.loader
    assert type(loader).__name__ == "SourceFileLoader", loader
    add_up()
    dist.destroy_process_group()
    add_up(init_method="env://", rank=rank, world_size=size)
    dist.destroy_process_group()
    if rank == 0:
        taken.close()
    add_up(init_method="tcp://127.0.0.1:" + os.environ["MASTER_PORT"], rank=rank, world_size=size)
    dist.destroy_process_group()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    add_up(rank=0, world_size=1)  # every worker for itself, and not ended
    tell(sums=sums)
"""


@pytest.mark.torch
def test_process_groups_need_no_port(folder: Folder) -> None:
    folder.write("network.py", "import torch\none = lambda: torch.ones(1)")
    folder.write("train.py", RENDEZVOUS)
    done = folder.launch("-n", "2", "train.py", TRIREME_RUN_PRELOAD=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [told["sums"] for told in folder.told(2)] == [[2, 2, 2, 1], [2, 2, 2, 1]]


@pytest.mark.torch
def test_a_process_group_ends_right_after_a_collective(folder: Folder) -> None:
    """Torch joins gloo's threads while it holds the GIL, which they need to release a collective."""
    folder.write(
        "train.py",
        """
        import sys
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP

        sys.setswitchinterval(60)  # as on a busy machine: nobody gets the interpreter who does not wait for it
        for _ in range(10):
            dist.init_process_group("gloo")
            model = DDP(torch.nn.Linear(4, 1))
            model(torch.ones(2, 4)).sum().backward()
            dist.destroy_process_group()
            del model
        print("through")
        """,
    )
    done = folder.launch("-n", "2", "train.py", TRIREME_RUN_PRELOAD=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ranks_that_printed("through", done.stdout) == [0, 1]
