"""Evaluates a plan in the languages asked for, and finds what disagrees."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from differential import files, oracle, run_python
from differential.compare import between_languages, disagreement, in_cpp
from differential.oracle_expressions import Unsupported
from differential.run_cpp import Program


class Checker:
    def __init__(self, folder: Path, languages: Sequence[str] = ("python", "cpp")) -> None:
        self._folder = folder
        self._languages = languages
        self._program = Program()
        self._number = 0
        self.compared: Counter[str] = Counter()  # by language

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *error: object) -> None:
        self._program.__exit__(*error)

    def problem(self, plan: dict[str, Any]) -> str | None:
        """The first disagreement, or None. A plan that the oracle does not know has none."""
        try:
            expected = oracle.run(plan)
        except (Unsupported, KeyError, TypeError, IndexError):  # a plan that was shrunk too far
            return None
        self._number += 1
        folder = self._folder / str(self._number)
        placed = files.write(plan, folder)
        outcomes: dict[str, Any] = {}
        if "cpp" in self._languages:
            self._program.start(placed)
        if "python" in self._languages:
            outcomes["python"] = run_python.run(placed)
        if "cpp" in self._languages:
            outcomes["cpp"] = self._program.outcome(placed)
        self.compared.update(outcomes.keys())
        shutil.rmtree(folder)
        for language, outcome in outcomes.items():
            found = disagreement(in_cpp(expected) if language == "cpp" else expected, outcome)
            if found is not None:
                return f"{language}: {found}"
        if len(outcomes) == 2:
            return between_languages(plan, outcomes["python"], outcomes["cpp"], expected)
        return None
