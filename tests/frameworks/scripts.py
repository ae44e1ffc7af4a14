"""Programs of their own, for what a process can only have once, such as a backend of Keras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_script(source: str, folder: Path) -> Any:
    """What the script has written as JSON into the file that is its argument."""
    script, found = folder / "script.py", folder / "found.json"
    script.write_text(source)
    environment = {name: value for name, value in os.environ.items() if name != "TRIREME_RUN_PRELOAD"}
    command = [sys.executable, str(script), str(found)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(found.read_text())
