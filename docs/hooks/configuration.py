"""The keys of a configuration file, from the schema that reads it."""

from __future__ import annotations

from docs.hooks.fields import fields_of, meanings, table
from nestegg.configuration import config as schema
from nestegg.configuration.config import LOSSES
from nestegg.configuration.limits import CHOICES, FEATURES
from nestegg.configuration.participants import BUDGETS
from nestegg.data import DATASETS
from nestegg.models.networks import MODELS
from nestegg.planning.accounts import ACCOUNTANTS
from nestegg.planning.planners import COMPOSITIONS
from nestegg.planning.registry import METHODS
from nestegg.schema import Section

# Every table of the file: how it is written, and what reads it.
TABLES: dict[str, type[Section]] = {
    "at the top": schema.Config,
    "[federation]": schema.FederationTable,
    "[model]": schema.Model,
    "[training]": schema.Training,
    "[privacy]": schema.Privacy,
    "[[privacy.groups]]": schema.GroupTable,
    "[privacy.adaptive]": schema.Adaptive,
    "[privacy.side]": schema.Side,
    "[ledger]": schema.LedgerTable,
}


def choices() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the words that keys may have, by section and key, from where they are checked."""
    found: dict[str, dict[str, tuple[str, ...]]] = {
        "federation": {"dataset": (*DATASETS, "…")},
        "model": {"name": (*MODELS, "…"), "features": (*FEATURES, "…")},
        "training": {"loss": (*LOSSES, "…")},
        "privacy": {
            "method": (*METHODS, "…"),
            "composition": tuple(COMPOSITIONS),
            "accountant": tuple(ACCOUNTANTS),
            "budgets": tuple(BUDGETS),
        },
    }
    for (section, key), words in CHOICES.items():
        found[section][key] = words
    return found


def configuration() -> str:
    """Return a heading and a table for each table of the file."""
    words, parts = choices(), []
    for written, model in TABLES.items():
        fields = fields_of(model, words.get(written.strip("[]")))
        title = f"`{written}`" if written.startswith("[") else "At the top of the file"
        said = meanings(model.__name__) if model is schema.Config else meanings(model.__name__, model)
        parts.append(f"## {title}\n\n{(model.__doc__ or '').partition('.')[0].strip()}.\n")
        parts.append(table(f"configuration {written}", fields, said) + "\n")
    return "\n".join(parts)
