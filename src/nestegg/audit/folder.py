"""A run's folder as an arm of the audit: what may be released follows from models, plans and public data alone.

What a folder may hold is written down here once more: a file or a field that is new must be added, and thought about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.subjects import plain_values
from nestegg.configuration.config import load_config
from nestegg.configuration.description import CONFIG, Description, read_record
from nestegg.configuration.finished import ARITHMETIC
from nestegg.errors import InputError, VerificationError
from nestegg.ledger import Ledger
from nestegg.planning import Plan, load_plan
from nestegg.runs.folder import RunFolder
from nestegg.runs.private import NAME as PRIVATE
from nestegg.training import AdaptiveClipping, LocalTraining, Mechanics, SideStatistics, kernel

RUN = "run"
_WORDS = b"follows from the seed"  # of the note that such a run is not for release; no finding says it
_FILES = re.compile(
    r"\.lock|config\.toml|run\.json|plan\.json|plans/[0-9a-f]{64}\.json|rounds\.jsonl|summary\.json|report\.html"
    r"|checkpoint\.safetensors|model\.safetensors|audit(-[\w.-]+)?\.(json|html)"
    r"|statement\.(json|html|pdf)|statement\.json\.sig"
    r"|(accuracy|loss|clip-norm|spending|sampling|noise)\.(png|svg)"
    r"|\.[^/]+\.\d+"  # being written, or torn by a crash
)
_SIMULATED = re.compile(r"simulation-only-labels\.(png|svg)")
_LINE = {
    "round", "accuracy", "loss", "metrics", "epsilon_spent", "clip_norm", "noise_std", "learning_rate", "side", "note",
}  # fmt: skip
_SUMMARY = {
    "method", "composition", "accountant", "colluders", "dataset", "model", "engine", "engine_reason",
    "instruction_set", "seed", "rounds", "stopped", "final_accuracy", "final_loss", "final_metrics", "run", "groups",
    "epsilon_of_rounding", "reproducible", "remarks", "note",
}  # fmt: skip
_GROUP = {
    "name", "clients", "epsilon", "epsilon_earlier", "epsilon_here", "epsilon_spent", "epsilon_left", "account",
}  # fmt: skip
_CHECKPOINT = {
    "round", "line", "results", "clip_norm", "loss", "config", "arithmetic", "engine", "instruction_set", "plan",
    "note",
}  # fmt: skip
_STATEMENT = {
    "format", "day", "run", "warnings", "promise", "groups", "plan", "adaptivity", "trusted", "not_covered", "audit",
    "ledger", "other_runs", "changes", "withdrawals", "versions", "files",
}  # fmt: skip
_RECORD = {"format", "run", "ledger", "model", "values", "note"}
_VALUE = re.compile(r"plan|layout|weights|version|rates|precision|(local|mechanics)\.[\w.]+")
_TENSORS = {"model", "velocity"}
_UN_NOISED = re.compile(r"second|time|cohort|broken|label|sample|sizes|counts")  # in names of what is never released


def folder_findings(path: Path | str) -> list[Finding]:
    """Attack what a run has written: read what may be released as a stranger would, and compare it with its plan.

    Args:
        path: the folder of a run, complete or not.

    Raises:
        InputError: there is no run.

    >>> [one.says for one in folder_findings("monday") if one.refutes]  # doctest: +SKIP
    ['outside private/, label-counts.csv is none of the files that may be released']
    """
    run = _Run(Path(path))
    return [run.files(), run.fields(), run.stamps(), run.private(), *run.follows()]


class _Run:
    """A folder, as it is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, RunFolder(path)
        self.about: Description = self.folder.about

    def files(self) -> Finding:
        """Look for files that have no place in what may be released."""
        strange = [name for name in self._names if not self._may_lie_here(name)]
        says = f"outside {PRIVATE}/, {_some(strange)} none of the files that may be released"
        fine = f"outside {PRIVATE}/ are only files that may be released"
        return self._finding("files", says if strange else fine, bool(strange), len(self._names))

    def fields(self) -> Finding:
        """Look for fields that are not among those that follow from models, plans and public data."""
        strange = [name for name in self._strange_fields() if self._counts(name)]
        says = f"{_some(strange)} no field that may be released" if strange else "all fields may be released"
        return self._finding("fields", says, bool(strange))

    def stamps(self) -> Finding:
        """Look for files of a reproducible run that do not say so, and for the words where they do not belong."""
        unstamped = [name for name, text in self._texts() if (_WORDS in text) != self.about.reproducible]
        if self.about.reproducible:
            unstamped += [f"line {n}" for n, line in enumerate(self.folder.lines(), 1) if _WORDS not in line.encode()]
            unstamped += self._unstamped_ledger()
            wrong = f"{_some(unstamped)} not marked 'not for release', though the noise follows from a seed"
            fine = "everything says that it is not for release"
        else:
            wrong = f"{_some(unstamped)} marked 'not for release', though the noise is secret"
            fine = "the noise is secret, and nothing says otherwise"
        return self._finding("not for release", wrong if unstamped else fine, bool(unstamped), len(self._names))

    def private(self) -> Finding:
        """Look at who may enter the private part."""
        place = self.path / PRIVATE
        mode = place.stat().st_mode & 0o777 if place.is_dir() else None
        if mode is None:
            return self._finding("private part", f"there is no {PRIVATE}/, so nothing in it can be read")
        return self._finding("private part", f"{PRIVATE}/ has mode {mode:04o}; 0700 is claimed", mode & 0o077 != 0)

    def follows(self) -> Iterator[Finding]:
        """Compare plans with their digests, and rounds with the rows of plans."""
        try:
            plans = [load_plan(self.path / "plan.json"), *map(load_plan, sorted(self.path.glob("plans/*.json")))]
        except (InputError, VerificationError) as error:
            yield self._finding("plan file", str(error), True)
            return
        made_by = self._facts.get("plan")
        known = made_by is None or made_by in {plan.digest for plan in plans}
        says = "plans are what their digests say" if known else f"the checkpoint was made by another plan, {made_by}"
        yield self._finding("plan file", says, not known, len(plans))
        claims = [self._claims(plan) for plan in plans]
        lines = [json.loads(line) for line in self.folder.lines()]
        wrong = [line.get("round") for line in lines if not any(_agree(line, one) for one in claims)]
        says = f"{len(wrong)} rounds, {wrong[0]} the first, do not follow" if wrong else "ε, noise and norms follow"
        # Numbers of another arithmetic may be right and differ in their last digits, or have meant something else.
        yield self._finding("rounds", f"{says} from the plan", bool(wrong) and not self._is_foreign, len(lines))

    def _finding(self, attack: str, says: str, refutes: bool = False, trials: int = 1) -> Finding:
        return Finding(RUN, attack, f"{says}{self._elsewhere}", refutes=refutes, trials=max(trials, 1))

    @cached_property
    def _names(self) -> list[str]:
        """All files outside the private part."""
        files = (path.relative_to(self.path) for path in sorted(self.path.rglob("*")) if not path.is_dir())
        return [file.as_posix() for file in files if file.parts[0] != PRIVATE]

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """What the checkpoint says of itself."""
        return _header(self.path / "checkpoint.safetensors")[1]

    @property
    def _is_foreign(self) -> bool:
        return bool(self._facts) and self._facts.get("arithmetic", 1) != ARITHMETIC

    @cached_property
    def _elsewhere(self) -> str:
        """What is to be known of a run that was made by another version or on another processor."""
        kernel_here = kernel.load()
        made, here = self._facts.get("instruction_set"), kernel_here and kernel_here.instruction_set
        said = ["by another version of nestegg"] if self._is_foreign else []
        said += [f"on another processor ({made}; here {here})"] if made is not None and made != here else []
        return f"; the run was made {' and '.join(said)}" if said else ""

    def _may_lie_here(self, name: str) -> bool:
        return bool(_FILES.fullmatch(name)) or (self.about.reproducible and bool(_SIMULATED.fullmatch(name)))

    def _counts(self, field: str) -> bool:
        """Whether a strange field is held against the run: of another version, only if its name tells why."""
        return not self._is_foreign or bool(_UN_NOISED.search(field))

    def _strange_fields(self) -> Iterator[str]:
        yield from self._unknown("rounds.jsonl", _LINE, *map(json.loads, self.folder.lines()))
        rounds, whole = self.path / "rounds.jsonl", len(self.folder.lines())
        if rounds.is_file() and len(rounds.read_bytes().splitlines()) > whole + 1:  # a crash tears the last one alone
            yield f"rounds.jsonl: line {whole + 1}"
        summary = _json(self.path / "summary.json")
        yield from self._unknown("summary.json", _SUMMARY, summary)
        yield from self._unknown("summary.json", _GROUP, *summary.get("groups", ()))
        for file, allowed in (("checkpoint", _CHECKPOINT), ("model", {"plan", "note"})):
            tensors, facts = _header(self.path / f"{file}.safetensors")
            yield from self._unknown(f"{file}.safetensors", allowed, facts)
            yield from self._unknown(f"{file}.safetensors", _LINE, json.loads(facts.get("line", "{}")))
            if file == "checkpoint":
                yield from self._unknown("checkpoint.safetensors", _TENSORS, dict.fromkeys(tensors))
        yield from self._unknown("statement.json", _STATEMENT, _json(self.path / "statement.json"))
        record = _json(self.path / "run.json")
        yield from self._unknown("run.json", _RECORD, record)
        yield from (f"run.json: {name}" for name in record.get("values", ()) if not _VALUE.fullmatch(name))
        page = self.path / "report.html"
        if not self.about.reproducible and page.is_file() and re.search(rb"simulation[-_ ]only", page.read_bytes()):
            yield "report.html: what only a simulation knows"

    def _unknown(self, file: str, allowed: set[str], *contents: dict[str, Any]) -> Iterator[str]:
        names = dict.fromkeys(name for content in contents for name in content if name not in allowed)
        simulated = self.about.reproducible
        yield from (f"{file}: {name}" for name in names if not (simulated and name.startswith("simulation_only_")))

    def _texts(self) -> Iterator[tuple[str, bytes]]:
        """Files that must say what they are, and where they say it.

        A picture has it drawn, as its SVG file has; a signature is of a file that says it.
        """
        secret = sorted(self.path.glob(f"{PRIVATE}/*.json*")) if self.about.reproducible else []
        for path in [*(self.path / name for name in self._names), *secret]:
            name = path.relative_to(self.path).as_posix()
            if path.name == ".lock" or path.suffix in (".png", ".sig") or re.fullmatch(r"\..+\.\d+", path.name):
                continue
            yield name, _head(path) if path.suffix == ".safetensors" else path.read_bytes()

    def _unstamped_ledger(self) -> list[str]:
        file = self.path / PRIVATE / "ledger.db"
        if self.about.ledger is not None or not file.is_file():
            return []
        with Ledger(file, read_only=True) as ledger:
            notes = [run.note or "" for run in ledger.history().runs.values()]
        return [f"{PRIVATE}/ledger.db"] if not all(_WORDS.decode() in note for note in notes) else []

    def _claims(self, plan: Plan) -> Claims:
        """What a plan promises, in the unit of this run."""
        if (self.path / CONFIG).is_file():
            config = load_config(self.path / CONFIG)
            unit, side = config.privacy.clip_unit, SideStatistics.of_table(config.privacy.side.model_dump())
            local = LocalTraining(learning_rate=config.training.learning_rate, schedule=config.training.schedule)
        else:
            values = read_record(self.path).values
            unit = values.get("mechanics.clip_unit", Mechanics().clip_unit)
            side = SideStatistics(**plain_values(SideStatistics, values, "mechanics.side"))
            local = LocalTraining(learning_rate=1.0, schedule=values["rates"])
        adaptive = AdaptiveClipping(**self.about.adaptive)
        mechanics = Mechanics(clip_unit=unit, colluders=self.about.colluders, adaptive=adaptive, side=side)
        return Claims(plan, mechanics, local)


def _agree(line: dict[str, Any], claims: Claims) -> bool:
    """Whether what a line says of ε, noise, norm and learning rate follows from a plan."""
    plan, t = claims.plan, line.get("round", 0) - 1
    if not 0 <= t < plan.rounds or set(line.get("epsilon_spent", ())) != {row.group.name for row in plan.groups}:
        return False
    pairs = [(line["epsilon_spent"][row.group.name], row.epsilon_spent[t]) for row in plan.groups]
    pairs.append((line.get("learning_rate"), claims.local.rates(plan.rounds)[t]))
    if plan.is_private:
        norm = line.get("clip_norm") or 0.0
        learnt = claims.learns_clip_norm and t > 0
        pairs.append((norm, norm if learnt else plan.clip_norm * claims.units[t]))
        pairs.append((line.get("noise_std"), claims.std(t, norm / claims.units[t]) / claims.expected[t]))
        stds, said = claims.side_stds(t, norm / claims.units[t]), line.get("side", {})
        if set(said) != {*stds, *(name.removesuffix("_std") for name in stds)}:
            return False
        pairs += [(said[name], std) for name, std in stds.items()]
    return all(np.isclose(np.inf if said is None else said, real, rtol=1e-9, atol=0.0) for said, real in pairs)


def _header(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The names of a file's tensors, and the facts about them; nothing where there is no file."""
    if not path.is_file():
        return [], {}
    content = _parsed(path, _head(path))
    about = content.pop("__metadata__", {})
    return list(content), {**_parsed(path, about.pop("nestegg", "{}")), **about}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def _json(path: Path) -> dict[str, Any]:
    return _parsed(path, path.read_bytes()) if path.is_file() else {}


def _parsed(path: Path, text: str | bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def _some(names: Sequence[str]) -> str:
    """Some names and a verb, for a sentence."""
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:1])} and {len(names) - 1} others are"
