"""Memory of all processes of a job with 4 idle torch workers: proportional set size, which divides shared pages."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from measure import Options, Outcome, alternate, median, times, workplace

_HERE = Path(__file__).parent
_WORKERS = 4
_PATIENCE_S = 300
_SETTLE_S = 2  # for memory that is freed or loaded right after the start


def measure(options: Options) -> Outcome:
    forms = {"Trireme": job([sys.executable, "trireme_script.py"])}
    if options.peers:
        forms["Ray Train"] = job([str(options.peers / "python"), "ray_script.py"])
    measured = alternate(forms, options.repeat)
    outcome = Outcome(
        "memory: driver and 4 idle torch workers, with all other processes of the job",
        ["", "PSS", "processes"] + (["Ray Train uses more by"] if options.peers else []),
        measured={"runs": measured},
    )
    sizes = {name: median([run["pss_mb"] for run in runs]) for name, runs in measured.items()}
    for name, runs in measured.items():
        ratio = [times(sizes["Ray Train"], sizes[name]) if name == "Trireme" else ""] if options.peers else []
        outcome.rows.append([name, f"{sizes[name]:,.0f} MB", str(runs[-1]["processes"]), *ratio])
    return outcome


def job(command: list[str]) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        with workplace() as (folder, env), open(folder / "output", "w+") as output:
            driver = subprocess.Popen(command, env=env, cwd=_HERE, stdout=output, stderr=subprocess.STDOUT)
            try:
                wait_until_inside(folder, driver, output)
                time.sleep(_SETTLE_S)
                family = descendants(driver.pid)
                return {"pss_mb": sum(map(pss_kb, family)) / 1024, "processes": len(family)}
            finally:
                (folder / "measured").touch()
                driver.wait(timeout=_PATIENCE_S)

    return once


def wait_until_inside(folder: Path, driver: subprocess.Popen[bytes], output) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while len(list(folder.glob("inside_*"))) < _WORKERS:
        if driver.poll() is not None or time.monotonic() > deadline:
            output.seek(0)
            sys.exit(f"the workers did not enter the function:\n{output.read()[-4000:]}")
        time.sleep(0.05)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has just exited
            continue
        children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    family = [root]
    for pid in family:
        family += children.get(pid, [])
    return family


def pss_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
