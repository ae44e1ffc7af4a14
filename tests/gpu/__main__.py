"""`make test-gpu`: failures, restarts and resizes on a machine with two GPUs, with one line per case.

`--cpu` runs the same cases with gloo and pretended GPUs, as far as they make sense, to test the script itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback

WORKERS = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-gpu", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="without GPUs")
    parser.add_argument("--case", action="append", default=[], help="only this case; repeatable")
    options = parser.parse_args()
    if not options.cpu and (problem := no_gpus()):
        print(f"make test-gpu needs {WORKERS} GPUs: {problem}. `make test-gpu ARGS=--cpu` tests the script itself.")
        return 2
    if options.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    os.environ.setdefault("TRIREME_RESULTS", tempfile.mkdtemp(prefix="trireme_test_gpu_"))
    return run(options)


def no_gpus() -> str:
    """The reason why the cases cannot run; empty: they can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds none"
    found = torch.cuda.device_count()
    return "" if found >= WORKERS else f"torch finds {found}"


def run(options: argparse.Namespace) -> int:
    import trireme
    from gpu.cases import all_cases

    trireme.init(num_gpus=WORKERS)
    cases = all_cases(options.cpu)
    if unknown := set(options.case) - {case.name for case in cases}:
        print(f"unknown: {', '.join(sorted(unknown))}; cases: {', '.join(case.name for case in cases)}")
        return 2
    lines = []
    failed = 0
    for case in cases:
        if options.case and case.name not in options.case:
            continue
        if options.cpu and not case.on_cpu:
            lines.append(f"skipped {case.name}: {case.what} | needs a GPU")
            continue
        print(f"--- {case.name}: {case.what}", flush=True)
        try:
            seen = case.run(options.cpu)
        except Exception as error:
            traceback.print_exc()
            seen = {"raised": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        wrong = [name for name, value in case.expected.items() if seen.get(name) != value]
        failed += bool(wrong)
        verdict = f"FAILED ({', '.join(wrong)})" if wrong else "ok"
        lines.append(f"{verdict} {case.name}: {case.what} | expected {text(case.expected)} | seen {text(seen)}")
    print("\n=== report")
    print("\n".join(lines))
    print(f"{failed} failed; run folders: {os.environ['TRIREME_RESULTS']}")
    return 1 if failed else 0


def text(facts: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items()) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
