"""What a user waits for: seconds of commands that have little or nothing to compute. See docs/performance.md.

python -m bench.waits [--turns 5]

Each command runs in a process of its own, in turns; the least of all turns counts. Processor time (user and system)
depends little on what else the machine does; what a user waits for is less where two processes share the work.
Modules may be kept compiled, as they are for users, whatever this process was told: the first turn compiles them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from time import perf_counter

from nestegg.bench.machine import machine

EXAMPLES = Path(__file__).parent.parent / "examples"
EXAMPLE, RECIPE = EXAMPLES / "digits.toml", EXAMPLES / "recipes" / "digits.toml"


def commands(folder: Path) -> dict[str, list[str]]:
    """Return what is timed, with what it needs in a folder; `{turn}` is the number of the turn."""
    short = folder / "one-round.toml"
    short.write_text(EXAMPLE.read_text().replace("rounds = 25", "rounds = 1"))
    _nestegg("plan", str(EXAMPLE), "--out", str(folder / "plan.json"))
    _nestegg("run", str(short), "--out", str(folder / "done"))
    return {
        "import torch": [sys.executable, "-c", "import torch"],
        "nestegg --version": ["--version"],
        "nestegg --help": ["--help"],
        "nestegg plan PLAN.json": ["plan", str(folder / "plan.json")],
        "nestegg verify PLAN.json": ["verify", str(folder / "plan.json")],
        "nestegg run of one round": ["run", str(short), "--out", str(folder / "run-{turn}")],
        "nestegg run of a recipe": ["run", str(RECIPE), "--out", str(folder / "recipe-{turn}")],
        "nestegg run --resume, finished": ["run", "--resume", str(folder / "done")],
    }


def _nestegg(*arguments: str) -> tuple[float, float]:
    """Run a command; the seconds it took, by the clock and of the processor."""
    command = list(arguments) if arguments[0] == sys.executable else [sys.executable, "-m", "nestegg", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start, before = perf_counter(), os.times()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waited, after = perf_counter() - start, os.times()
    return waited, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print a table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        timed = commands(Path(folder))
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in timed}
        for turn in range(turns):
            for name, arguments in timed.items():
                seconds[name].append(_nestegg(*(part.replace("{turn}", str(turn)) for part in arguments)))
    print(f"| command | seconds, least of {turns} | of the processor |\n|---|---:|---:|")
    for name, took in seconds.items():
        waited, worked = (min(column) for column in zip(*took, strict=True))
        print(f"| `{name}` | {waited:.2f} | {worked:.2f} |")
    print(f"\n{machine()}.")


if __name__ == "__main__":
    main()
