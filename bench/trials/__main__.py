"""Run the trials that are missing, print what they gave, and write it into docs/trials.md.

    python -m bench.trials --data DIR [--idea NAME] [--dataset NAME] [--all] [--fresh | --reported]

DIR holds MNIST, FashionMNIST, adult and cifar-10-batches-py, as `nestegg data get` writes them. Ideas run one after the
other in one process; what was run is in results/trials, and is not run again. An idea that cannot pass any more is not
run on further rows, but with --all. With --reported, nothing and the opponents that came within a point on validation
data are run on test data, with the seeds that tables report.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.trials.cells import Cells, run
from bench.trials.roster import NOTHING, ROSTER
from bench.trials.settings import FRESH, PAPER, REPORTED, SEEDS, STRICT
from bench.trials.table import NO, ROWS, is_close, refresh, summary, verdict

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the datasets; without it nothing is run")
    parser.add_argument(
        "--idea", choices=ROSTER, action="append", help="only this one, beside nothing; may be repeated"
    )
    parser.add_argument(
        "--dataset", choices=(*PAPER, *ROWS), action="append", help="only this one, or one of its rows; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="also what cannot pass any more")
    parser.add_argument("--fresh", action="store_true", help="also with ten further seeds")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "trials")
    parser.add_argument("--reported", action="store_true", help="opponents that came close, with reported seeds")
    given = parser.parse_args()
    cells = Cells(given.results)
    names = list(dict.fromkeys([NOTHING, *(given.idea or ROSTER)]))
    seeds = REPORTED if given.reported else (*SEEDS, *FRESH) if given.fresh else SEEDS
    wanted = given.dataset or PAPER
    for row in (row for rows in (PAPER, STRICT) for dataset, row in rows.items() if {dataset, row} & set(wanted)):
        for name in names if given.data else ():
            if name != NOTHING and not _is_wanted(cells, name, row, given):
                continue
            for seed in seeds:
                idea = ROSTER[name].make()
                if cells.get(name, idea, row, seed) is None:
                    trial = run(idea, row, seed, given.data)
                    cells.put(name, idea, row, seed, trial=trial)
                    print(f"{row}, {name}, seed {seed}: {trial.accuracy:.2f} in {trial.seconds} s", flush=True)
    print(summary(cells))
    if given.results == ROOT / "results" / "trials":
        refresh(ROOT / "docs" / "trials.md", cells)


def _is_wanted(cells: Cells, name: str, row: str, given: argparse.Namespace) -> bool:
    if given.reported:
        return is_close(cells, name, row)
    return bool(given.all) or not verdict(cells, name, SEEDS).endswith(NO)


if __name__ == "__main__":
    main()
