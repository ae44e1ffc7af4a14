"""`make chaos SEED=1 N=50`: runs scenarios of a seed on real processes, with one line each and a table at the end."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from chaos import scenario
from chaos.load import Load
from chaos.runner import Done, Runner, Skipped, temporary_folder


def main() -> int:
    options = parse()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    torch = importlib.util.find_spec("torch") is not None and not options.no_torch
    if options.fixed:
        chosen = [each for each in scenario.fixed() if options.only is None or options.only in each.name]
    else:
        numbers = range(options.first, options.first + options.count)
        chosen = [scenario.make(seed, number, torch) for number in numbers]
        chosen = [scenario.in_cluster(each) for each in chosen] if options.cluster else chosen
    print(f"seed {seed}, {len(chosen)} scenarios", flush=True)
    folder = options.folder or temporary_folder()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Load() if options.load else contextlib.nullcontext():
        broken = run_all(chosen, Runner(folder, options.load), options, seed)
    if not broken and options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if broken else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="default: a random seed, which is printed")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario, to replay one")
    parser.add_argument("--fixed", action="store_true", help="the short set that `make test` runs")
    parser.add_argument("--only", help="only the fixed scenarios whose name contains this")
    parser.add_argument("--load", action="store_true", help="run at the lowest priority while all cores are busy")
    parser.add_argument("--cluster", action="store_true", help="run on two nodes, which may be lost too")
    parser.add_argument("--parallel", type=int, default=1, help="number of scenarios that run at the same time")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--folder", type=Path, help="folder for the runs")
    return parser.parse_args()


def run_all(chosen: list[scenario.Scenario], runner: Runner, options: argparse.Namespace, seed: int) -> list[str]:
    met: Counter[tuple[str, str]] = Counter()
    broken: list[str] = []
    skipped = held = 0
    begun, cpu_before = time.monotonic(), cpu_of_scenarios()
    with ThreadPoolExecutor(options.parallel) as pool:
        running = {pool.submit(runner.run, each): each for each in chosen}
        try:
            for future in as_completed(running):
                each = running[future]
                try:
                    done = future.result()
                except Skipped as why:
                    skipped += 1
                    print(f"{each.name:>12}  skipped  {each.describe()}: {why}", flush=True)
                    continue
                met.update((fault.kind, fault.phase) for fault in each.faults)
                tell(each, done)
                if done.broken:
                    broken.append(replay(each, seed, options))
                else:
                    held += 1
        except KeyboardInterrupt:
            print("interrupted")
            pool.shutdown(wait=False, cancel_futures=True)
            runner.interrupt()
    print_table(met)
    cpu = (cpu_of_scenarios() - cpu_before) / max(1, held + len(broken))
    took = f"{time.monotonic() - begun:.0f} s, {cpu:.1f} s of CPU each"
    print(f"{held} passed, {len(broken)} failed, {skipped} skipped in {took}")
    for command in broken:
        print(f"  replay: {command}")
    return broken


def cpu_of_scenarios() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tell(each: scenario.Scenario, done: Done) -> None:
    word = "FAILED" if done.broken else "passed"
    met = "" if done.broken or done.met == len(each.faults) else f"  (met {done.met} of {len(each.faults)})"
    counts = f"{done.restarts} restarts {done.starts} starts {done.seconds:5.1f} s"
    print(f"{each.name:>12}  {word:<7}  {counts}  {each.describe()}{met}", flush=True)
    if done.broken:
        print(f"              {done.broken}\n              folder: {done.folder}", flush=True)


def replay(each: scenario.Scenario, seed: int, options: argparse.Namespace) -> str:
    load = " LOAD=1" if options.load else ""
    load += " CLUSTER=1" if options.cluster else ""
    if each.name.startswith("fixed-"):
        return f"make chaos{load} ARGS='--fixed --only {each.name.removeprefix('fixed-')}'"
    return f"make chaos{load} SEED={seed} N=1 FIRST={each.name.rpartition('-')[2]}"


def print_table(met: Counter[tuple[str, str]]) -> None:
    phases = ["start", "rendezvous", "step", "report", "upload", "commit", "restart", "resize", "shutdown", "instant"]
    print(f"\n{'':14}" + "".join(f"{phase:>11}" for phase in phases))
    for kind in sorted({kind for kind, _ in met}):
        print(f"{kind:14}" + "".join(f"{met[kind, phase] or '':>11}" for phase in phases))
    print()


if __name__ == "__main__":
    sys.exit(main())
