"""`make differential SEED=1 N=1000`: evaluates plans of a seed in both languages and compares with the oracle."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from differential import plans
from differential.check import Checker
from differential.shrink import shrunk


def main() -> int:
    options = parse()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    languages = ("python", "cpp") if options.language == "both" else (options.language,)
    print(
        f"seed {seed}, plans {options.first} to {options.first + options.count - 1}, {', '.join(languages)}", flush=True
    )
    folder = Path(tempfile.mkdtemp(prefix="differential"))
    begun = time.monotonic()
    found: list[int] = []
    ops: Counter[str] = Counter()
    with Checker(folder, languages) as checker:
        for number in range(options.first, options.first + options.count):
            plan = plans.draw(seed, number)
            ops.update(step["op"] for step in plan["dataset"]["steps"])
            problem = checker.problem(plan)
            if problem is not None:
                found.append(number)
                report(plan, problem, checker, seed, number, options)
                if len(found) >= options.most:
                    break
            if number % 1000 == 999:
                print(f"{number + 1 - options.first} plans, {len(found)} disagreements", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    evaluated = number + 1 - options.first
    took = time.monotonic() - begun
    print(f"compared: {dict(checker.compared)}")
    print(f"{evaluated} plans in {took:.0f} s, {len(found)} disagreements; steps: {dict(ops.most_common())}")
    return 1 if found else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--seed", type=int, help="default: a random seed, which is printed")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first plan, to replay one")
    parser.add_argument("--language", choices=("python", "cpp", "both"), default="both")
    parser.add_argument("--most", type=int, default=1_000_000, help="stop after this number of disagreements")
    parser.add_argument("--no-shrink", action="store_true")
    return parser.parse_args()


def report(
    plan: dict[str, Any], problem: str, checker: Checker, seed: int, number: int, options: argparse.Namespace
) -> None:
    print(f"plan {number}: {problem}"[:2000])
    print(f"  replay: make differential SEED={seed} FIRST={number} N=1 LANGUAGE={options.language}")
    if not options.no_shrink:
        plan = shrunk(plan, lambda smaller: checker.problem(smaller) is not None)
        print(f"  smaller: {(checker.problem(plan) or '')[:1000]}")
    print(f"  {json.dumps(plan)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
