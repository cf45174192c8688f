"""The schedules of docs/your-own-schedule.md and others of somebody else, as a module that lies outside the package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from nestegg import Budget, Group, Plan, plan
from nestegg.named import load_object

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-schedule.md").read_text()
PYTHON, TOML = (re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL) for kind in ("python", "toml"))
MORE = '''

@dataclass(frozen=True)
class Ramp:
    """Rates of one's own, another curve for each group, no rest."""

    low: float = 0.2
    weights: tuple[float, ...] = (1.0, 2.0)

    def schedule(self, setting):
        rates = np.linspace(self.low, setting.spending_rate, setting.rounds) * np.ones(setting.shape)
        rates[0] /= 2.0
        curves = [np.linspace(weight, 1.0, setting.rounds) for weight in self.weights]
        made = setting.calibrated(rates, curves)
        return Schedule(made.sampling_rate.tolist(), made.noise_multiplier.tolist())


@dataclass(frozen=True)
class Careful:
    """Who has less to spend is sampled less."""

    def schedule(self, setting):
        rates = np.minimum(1.0, setting.budgets / 10.0)[:, None] * np.ones(setting.shape)
        return setting.calibrated(rates, 1.0)

    def rest(self, after, row):
        return self


@dataclass(frozen=True)
class Bad:
    how: str = "overspends"

    def schedule(self, setting):
        fine = setting.calibrated(setting.spending_rate, 1.0)
        rates, noise = fine.sampling_rate.copy(), fine.noise_multiplier.copy()
        if self.how == "overspends":
            noise *= 0.999
        if self.how == "too often":
            rates[1, 2] = 1.2
        if self.how == "never":
            rates[1, 2] = 0.0
        if self.how == "not a number":
            noise[0, 1] = np.nan
        if self.how == "endless":
            noise[0, 1] = np.inf
        if self.how == "quiet":
            noise[0, 1] = 0.01
        if self.how == "wrong shape":
            noise = noise[:, 1:]
        if self.how == "words":
            return Schedule(rates, "loud")
        if self.how == "raises":
            raise RuntimeError("no idea")
        if self.how == "nothing":
            return None
        return Schedule(rates, noise, fine.epsilon_spent)


@dataclass(frozen=True)
class Secretive:
    data: object = None

    def __post_init__(self):
        if self.data == "mine":
            raise RuntimeError("not yours")

    def schedule(self, setting):
        return setting.calibrated(setting.spending_rate, 1.0)


@dataclass(frozen=True)
class Restless(Secretive):
    def rest(self, after, row):
        return {"nobody": None}[row.group.name]


class Plain:
    def schedule(self, setting):
        return setting.calibrated(setting.spending_rate, 1.0)


number = 7
'''
GROUPS = [Group("strict", 30, Budget(4.0)), Group("open", 20, Budget(8.0))]
STEPS = "my_schedules:Steps"


def own(name: str, **parameters: Any) -> Any:
    return load_object("method", f"my_schedules:{name}")(**parameters)


def made_by(name: str, rounds: int = 6, **parameters: Any) -> Plan:
    return plan(GROUPS, rounds, method=own(name, **parameters), spending_rate=0.5)


def small(folder: Path, method: str = STEPS, more: str = "", **privacy: object) -> Path:
    """The configuration of the page, quick to train."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in privacy.items())
    text = TOML[0].replace("clients = 50", "clients = 12").replace(STEPS, method)
    text = text.replace("rounds = 6", "rounds = 4\nlocal_epochs = 1\nreproducible = true")
    path = folder / "config.toml"
    path.write_text(text.replace("[privacy.planner]\nat = 3", lines + more))
    return path
