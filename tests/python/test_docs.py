"""Runs, compares or looks up everything that the pages and examples state.

A fenced block that begins with ```python test, ```cpp test or ```bash test is a complete program. The lines of a
```text output block after it must appear in the program's output.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import trireme
import trireme.data
from cpp_programs import BUILD, ROOT
from trireme import CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, _core

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "src/README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
EXAMPLES = sorted((ROOT / "examples/python").glob("*.py"))


class Block(NamedTuple):
    page: str
    line: int
    words: list[str]
    text: str
    output: list[str]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found: list[Block] = []
    for match in FENCE.finditer(text):
        words = match[1].split()
        line = text.count("\n", 0, match.start()) + 1
        if words == ["text", "output"]:
            assert found, f"{page.name}:{line}: output of no program"
            found[-1].output.extend(match[2].splitlines())
        elif "test" in words:
            found.append(Block(str(page.relative_to(ROOT)), line, words, match[2], []))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def marked(blocks: list[Block], language: str) -> list[Any]:
    chosen = [block for block in blocks if block.words[0] == language]
    marks = {block.name: [pytest.mark.torch] if "torch" in block.words else [] for block in chosen}
    return [pytest.param(block, id=block.name, marks=marks[block.name]) for block in chosen]


def run(command: list[Any], folder: Path, **variables: str) -> str:
    env = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a script in this process, which has imported torch and has a warm process that has done so too: importing it
    takes longer than most scripts."""

    def run_script(program: Path, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(program), *arguments])
        monkeypatch.syspath_prepend(str(program.parent))
        capfd.readouterr()
        runpy.run_path(str(program), run_name="__main__")
        return capfd.readouterr().out

    return run_script


def check_output(block: Block, printed: str) -> None:
    for line in block.output:
        assert line in printed, f"{block.name} does not print {line!r} but\n{printed}"


@pytest.mark.parametrize("block", marked(BLOCKS, "python"))
def test_python_block(block: Block, tmp_path: Path, run_here: Callable[..., str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.text)
    check_output(block, run_here(program) if "torch" in block.words else run([sys.executable, program.name], tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("block", marked(BLOCKS, "cpp"))
def test_cpp_block(block: Block, tmp_path: Path) -> None:
    library = BUILD / "src"
    if not (library / "libtrireme.so").exists():
        pytest.skip(f"{library}/libtrireme.so is not built: run `make build` first")
    (tmp_path / "program.cpp").write_text(block.text)
    flags = [
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT / 'include'}",
        f"-L{library}",
        f"-Wl,-rpath,{library}",
    ]
    # A block marked `data` needs Arrow, through the library that a program would link as trireme::data.
    libraries = ["-Wl,--no-as-needed", "-ltrireme_data", "-ltrireme"] if "data" in block.words else ["-ltrireme"]
    run([os.environ.get("CXX", "g++"), *flags, "program.cpp", *libraries, "-o", "program"], tmp_path)
    check_output(block, run([tmp_path / "program"], tmp_path))


PATH = os.pathsep.join([os.path.dirname(sys.executable), str(BUILD / "src/cli"), os.environ["PATH"]])


def trireme_command() -> list[str]:
    found = shutil.which("trireme", path=PATH)
    if not found:
        pytest.skip("there is no trireme command: run `make build` first")
    return [found]


@pytest.mark.parametrize("block", marked(BLOCKS, "bash"))
def test_bash_block(block: Block, tmp_path: Path) -> None:
    trireme_command()
    check_output(block, run(["bash", "-euc", block.text], tmp_path, PATH=PATH, TRIREME_PYTHON=sys.executable))


def test_blocks_are_found() -> None:
    assert {block.words[0] for block in BLOCKS} == {"python", "cpp", "bash"}
    assert {"README.md", "docs/quick_start.md", "docs/cpp.md"} <= {block.page for block in BLOCKS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", FENCE.sub("", page.read_text()))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|include|tests|tools|examples|docs|python)/[\w/.-]+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def options_in(text: str) -> set[str]:
    found = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
    return {option for option in found if "_" not in option}  # torchrun's second spelling: --nproc_per_node


def test_command_line_pages_have_every_command_and_option() -> None:
    def help_of(*words: str) -> str:
        return run([*trireme_command(), *words, "--help"], ROOT)

    page = (ROOT / "docs/command_line.md").read_text()
    sections = {section.split()[0]: section for section in page.split("\n## trireme ")[1:]}
    detached = page.partition("\n## Commands for detached scripts")[2].partition("\n## ")[0]
    sections["launch"] = (ROOT / "docs/launch.md").read_text()
    sections["manifest"] += (ROOT / "docs/kubernetes.md").read_text()
    commands = re.findall(r"^  (\w+) +[A-Z]", help_of().partition("Subcommands:")[2], re.MULTILINE)
    assert set(commands) == sections.keys()
    for command in commands:
        words = [command, "verify"] if command == "data" else [command]
        shown = "\n".join(line.split("  ")[1] for line in help_of(*words).splitlines() if re.match(r"  +-", line))
        missing = options_in(shown) - options_in(sections[command] + detached) - {"--help"}
        assert not missing, f"trireme {command}: not in docs: {missing}"
        synopsis = sections[command].splitlines()[0]
        assert command == "launch" or options_in(synopsis) <= options_in(shown), synopsis


@pytest.mark.parametrize("tool", ["generate_config_stub.py", "generate_wire_docs.py"])
def test_generated_files_are_up_to_date(tool: str) -> None:
    run([sys.executable, ROOT / "tools" / tool, "--check"], ROOT)


EXPECTED = {
    "checkpoint.py": [r"kept step 4, loss \d+\.\d+, 1000 weights\nkept step 5", "rank 1 has its own state: step 5"],
    "resume.py": [
        "started at step 0",
        "resumed at step 3",
        "restored and resumed at step 5",
        "the folder has 8 reports and 8 checkpoints",
    ],
    "trackers.py": ["worst loss of all ranks: 1.0", "1 file in .*/tensorboard"],
    "data_parquet.py": [
        "resuming in epoch 1 at row 10000",
        r"weights 2\.00 -1\.00 0\.50",
        "trireme data verify .*data_parquet",
    ],
    "validation.py": ["best: step 1, error 0.1, weight 2.9"],
    "digits.py": [r"Test accuracy: 9\d\.\d%", "checkpoint_000007 committed", "outcome "],
    "elastic.py": [
        r"resizing from 2 to 4 workers \(at a checkpoint\)",
        r"resizing from 4 to 1 worker \(at a checkpoint\)",
        r"workers \[2, 4, 1\], the sum of all steps is exact",
    ],
    "preemption.py": [
        r"rank 1 will be preempted in 20 s: SIGTERM from pid \d+",
        # Ranks run at their own pace, so rank 0 may be some steps ahead or behind.
        r"ranks \[1\] stop in \d+ s: saving step [1-9]",
        r"finished step 20; the last attempt resumed from step [1-9]",
    ],
    "quickstart.py": ["x = 2.965, loss 0.001196", "outcome "],
    "restart.py": ["SIGKILL", "restarting", "total 21, the last attempt began at step 3"],
    "state.py": [r"epoch 5: loss (\S+), without the detour \1\n"],
    "torch_accumulation.py": ["12 small batches, 3 exchanges of gradients", "equal to full batches in one process"],
    "torch_activation_checkpointing.py": [r"equal gradients; kept \d+ KiB without, \d+ KiB with recomputing"],
    "torch_compile.py": [r"loss (\S+) compiled, \1 not"],
    "torch_fsdp.py": [
        r"rank 2 of 3: steps 3 to 5, holds \(\d, 16\) of \(16, 16\)",
        "the same weights as one worker",
    ],
    "torch_mixed_precision.py": [r"outputs in torch\.bfloat16, weights in torch\.float32, loss 0\.0"],
    "torch_pipeline.py": ["2 stages of 2 layers, 4 small batches per step: equal to one process"],
    "torchrun_script.py": [
        "RuntimeError: a broken batch",
        "restarting",
        r"\[rank 0\] 2 workers, steps [34] to 5, mean weight 0\.\d",
    ],
    "torch_sharded.py": [
        r"rank 2 of 3: steps 3 to 5, holds \(2, 16\) of \(10, 16\)",
        "the same 4 tensors as one worker without interruption",
    ],
    "torch_tensor_parallel.py": [r"each of 4 workers holds \(8, 8\) of \(32, 8\); equal to one process"],
}


# Examples that are worker programs, and the options of the command that starts their workers.
LAUNCHED = {"torchrun_script.py": ["launch", "-n", "2", "--max-failures", "1"]}
ARGUMENTS = {
    "torchrun_script.py": ["--fail-at", "3"],
    # test_torch_model.py uses the default backend, which needs a quarter of a minute for each C++ program.
    "torch_compile.py": ["--backend", "aot_eager"],
}


def marks_of(example: Path) -> list[pytest.MarkDecorator]:
    return [pytest.mark.torch] if "torch" in example.read_text() else []


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.name, marks=marks_of(e)) for e in EXAMPLES],
)
def test_example(example: Path, tmp_path: Path, run_here: Callable[..., str]) -> None:
    arguments = ARGUMENTS.get(example.name, [])
    if example.name in LAUNCHED:
        program = [*trireme_command(), *LAUNCHED[example.name]]
        printed = run([*program, example, *arguments], tmp_path, TRIREME_PYTHON=sys.executable)
    elif "torch" in example.read_text():
        printed = run_here(example, *arguments)
    else:
        printed = run([sys.executable, example, *arguments], tmp_path)
    for pattern in EXPECTED[example.name]:
        assert re.search(pattern, printed), printed


@pytest.mark.torch
def test_digits_resumes_from_its_checkpoint(tmp_path: Path, run_here: Callable[..., str]) -> None:
    program, options = ROOT / "examples/python/digits.py", ["--num-workers", "2", "--name", "digits"]
    assert "checkpoint_000001 committed" in run_here(program, *options, "--epochs", "2")
    printed = run_here(program, *options, "--epochs", "3")
    assert "digits (continued from checkpoint_000001)" in printed
    assert re.findall(r"(checkpoint_\d+) committed", printed) == ["checkpoint_000002"]


def documented_events() -> dict[str, tuple[set[str], set[str]]]:
    """Event kind -> required fields, optional fields."""
    page = (ROOT / "docs/event_log.md").read_text()
    kinds = {}
    for section in page.split("\n### ")[1:]:
        name = section.split("\n", 1)[0]
        always = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) | {"time", "event"}
        kinds[name] = (always, set(re.findall(r"^\| \*`(\w+)`\* \|", section, re.MULTILINE)))
        example = re.search(r"```json\n(.*)\n```", section)
        assert example, name
    return kinds


def check_events(folder: Path) -> set[str]:
    kinds = documented_events()
    seen = set()
    for event in _core.read_run(str(folder))["events"]:
        always, perhaps = kinds[event["event"]]
        assert always <= event.keys() <= always | perhaps, event
        seen.add(event["event"])
    return seen


def test_event_log_page_has_every_kind_and_field(results: Path) -> None:
    def train() -> None:
        if trireme.get_context()._attempt == 0:
            raise ValueError("once")
        for loss in range(3):
            trireme.report({"loss": loss}, checkpoint=trireme.Checkpoint.from_dict({"loss": loss}), validation=True)

    DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1000}),  # causes a warning
        run_config=RunConfig(
            name="told",
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
        validation_config=trireme.ValidationConfig(lambda checkpoint: checkpoint.to_dict()),
    ).fit()
    seen = check_events(results / "told")
    # A rank that has not failed when the other one does is kept.
    assert seen - {"worker_kept"} == documented_events().keys() - {"stop_requested"} - RARE - OF_CLUSTERS - BY_PEERS


OF_CLUSTERS = {"node_lost", "checkpoint_stored"}  # test_clusters.py, test_cluster_memory.py
BY_PEERS = {"connection_refused"}  # tests/unit/control/controller_peers_test.cpp
RARE = {"worker_kept", "resize_wanted", "resizing", "preemption_announced", "hang_detected", "pausing"}


def test_event_log_page_has_the_rare_kinds(results: Path, declared: Any) -> None:
    class GiveMore(trireme.UserCallback):
        def after_report(self, *_: Any) -> None:
            trireme.set_capacity(num_cpus=2)

    def train() -> None:
        context = trireme.get_context()
        if context._attempt == 1 and context.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        while context._attempt < 2:  # resized, then preempted
            trireme.report({}, checkpoint=trireme.Checkpoint.from_dict({"a": 1}))
            time.sleep(0.02)
        while context._attempt == 2 and not list(Path(context.get_trial_dir()).glob("stacks/*")):
            time.sleep(0.02)
        if context._attempt < 4:
            raise ValueError(f"error {context._attempt}")

    declared(num_cpus=1)
    DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=(1, 2), trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="rare",
            failure_config=FailureConfig(max_failures=2, hang_timeout_s=0.5, restart_backoff_s=0.01, warm_restart=True),
            callbacks=[GiveMore()],
        ),
    ).fit()
    assert check_events(results / "rare") >= RARE


def test_event_log_page_on_a_stop(results: Path) -> None:
    class Raises(trireme.UserCallback):
        def after_report(self, *_: Any) -> None:
            raise ValueError("enough")

    def train() -> None:
        trireme.report({"loss": 1})
        threading.Event().wait()

    with pytest.raises(trireme.ControllerError):
        DataParallelTrainer(train, run_config=RunConfig(name="stopped", callbacks=[Raises()])).fit()
    assert "stop_requested" in check_events(results / "stopped")


# As in a script: without annotations, and pickled by value.
SCRIPT: dict[str, Any] = {"__name__": "__main__", "lock": threading.Lock()}
exec(
    """
def two(config, extra): pass
def nothing(): pass
def uses_lock():
    with lock: pass
""",
    SCRIPT,
)


def fit(function: Callable[..., Any], datasets: Any = None, dataset_config: Any = None, **scaling: Any) -> None:
    DataParallelTrainer(
        function, scaling_config=ScalingConfig(**scaling), datasets=datasets, dataset_config=dataset_config
    ).fit()


REFUSALS: list[Callable[[], Any]] = [
    lambda: ScalingConfig(num_worker=4),  # type: ignore[call-arg]
    lambda: ScalingConfig(num_workers="4"),  # type: ignore[arg-type]
    lambda: ScalingConfig(num_workers=-1),
    lambda: ScalingConfig(num_workers=(4, 2)),
    lambda: ScalingConfig(resources_per_worker={"GPU": 1}),
    lambda: FailureConfig(max_failures=-2),
    lambda: trireme.set_capacity(num_cpus=-1),
    lambda: FailureConfig(fail_fast=True),  # type: ignore[call-arg]
    lambda: RunConfig(name="a/b"),
    lambda: DataParallelTrainer(SCRIPT["nothing"], datasets={"a/b": [1]}),
    lambda: DataParallelTrainer(SCRIPT["nothing"], datasets={"train": [1]}).fit(),
    lambda: fit(SCRIPT["nothing"], datasets={"train": trireme.data.range(3)}, num_workers=4),
    lambda: fit(
        SCRIPT["nothing"],
        datasets={"train": trireme.data.range(3)},
        dataset_config=trireme.DataConfig(datasets_to_split=["valid"]),
    ),
    lambda: trireme.DataConfig(memory_budget="much"),
    lambda: trireme.data.from_items([{"x": 1}, 2]),
    lambda: trireme.data.range(4).union(trireme.data.from_items([{"id": "a"}])).take(),
    lambda: list(trireme.data.range(9).iter_batches(batch_size=16, drop_last=True)),
    lambda: (iterator := trireme.data.range(9).iterator()).load_state({**iterator.state(), "rows": 4, "size": 8}),
    lambda: DataParallelTrainer(SCRIPT["nothing"], run_config=RunConfig(storage_filesystem=object())).fit(),
    lambda: RunConfig(resume="perhaps"),
    lambda: trireme.ValidationTaskConfig(timeout_s=0),
    lambda: trireme.init(engine="cluster"),
    lambda: trireme.report({}),
    lambda: fit(SCRIPT["two"]),
    lambda: fit(SCRIPT["uses_lock"]),
    lambda: fit(SCRIPT["nothing"], num_workers=4, resources_per_worker={"CPU": 2}),
    lambda: fit(SCRIPT["nothing"], num_workers=1, use_gpu=True),
    lambda: fit(SCRIPT["nothing"], num_workers=1, resources_per_worker={"licence": 1}),
]


@pytest.mark.parametrize("refused", REFUSALS, ids=range(len(REFUSALS)))
def test_errors_page_quotes_the_errors(refused: Callable[[], Any], declared: Any) -> None:
    declared(num_cpus=8, num_gpus=0)
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        refused()
    page = " ".join((ROOT / "docs/errors.md").read_text().replace("\\|", "|").split())
    assert str(caught.value) in page
