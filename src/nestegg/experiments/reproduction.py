"""What is reproduced: experiments at a scale, the cells that they need, and what finished cells show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from nestegg.checks import one_of
from nestegg.configuration.config import Config
from nestegg.experiments.cells import Store
from nestegg.experiments.definition import Experiment, load, name_of, names
from nestegg.experiments.outcomes import Outcome, configs_of, outcome_of


def chosen_experiments(name: str, only: str | None = None, seeds: int | None = None) -> dict[str, Experiment]:
    """Return experiments by name, as far as they have what is asked for.

    Args:
        name: of a table or figure; a file of one; or `all`.
        only: rows of this dataset, or the one row of this name.
        seeds: how many; by default those that an experiment has.
    """
    loaded = {name_of(Path(one)): load(one) for one in (names() if name == "all" else [name])}
    chosen = {one: experiment.only(only) for one, experiment in loaded.items()}
    if not any(chosen.values()):
        one_of("--only", only or "", dict.fromkeys(h for experiment in loaded.values() for h in experiment.handles()))
    return {one: experiment.with_seeds(seeds) for one, experiment in chosen.items() if experiment is not None}


@dataclass(frozen=True)
class Reproduction:
    """Experiments, by name, at one scale, and where their cells are kept.

    >>> from pathlib import Path
    >>> spending = Reproduction(chosen_experiments("figure-spending"), "smoke", Store(Path("results")))
    >>> spending.configs()  # plans say it all
    []
    >>> [outcome.name for outcome in spending.outcomes()]
    ['figure-spending']
    """

    experiments: Mapping[str, Experiment]
    scale: str
    store: Store

    def at_scale(self) -> Reproduction:
        """Return the same without experiments that have another scale of their own, whose cells take far longer."""
        mine = {name: one for name, one in self.experiments.items() if one.scale_for(self.scale) == self.scale}
        return Reproduction(mine, self.scale, self.store)

    def configs(self) -> list[Config]:
        """Return the configuration of every cell once, the first seed of everything first."""
        made = [
            configs
            for experiment in self.experiments.values()
            if experiment.trains
            for configs in configs_of(experiment, experiment.scale_for(self.scale)).values()
        ]
        in_turn = [config for configs in zip_longest(*made) for config in configs if config is not None]
        return list({self.store.path(config): config for config in in_turn}.values())

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return for each experiment how many of its cells are there, and how many it needs."""
        alone = {name: replace(self, experiments={name: one}).configs() for name, one in self.experiments.items()}
        return {name: (self.store.count(configs), len(configs)) for name, configs in alone.items()}

    def outcomes(self) -> list[Outcome]:
        """Return what the cells that are there show."""
        return [outcome_of(name, one, one.scale_for(self.scale), self.store) for name, one in self.experiments.items()]
