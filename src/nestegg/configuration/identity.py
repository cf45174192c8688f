"""The identity of a configuration: the digest that names cells and guards `--resume`.

Keys that were there when cells were first named always count. A later key counts only where it is not at its default,
so that adding one renames no cell and lets every run go on.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from nestegg.configuration.config import Config
from nestegg.configuration.method_keys import unread_keys
from nestegg.schema import Section

FIRST_KEYS = {
    "Config": {"federation", "model", "training", "privacy"},
    "FederationTable": {"dataset", "clients", "partition", "dirichlet", "samples_per_client"},
    "Model": {"name"},
    "Training": {
        *("rounds", "local_epochs", "batch_size", "learning_rate", "momentum", "schedule"),
        *("seed", "reproducible", "precision", "engine"),
    },
    "GroupTable": {"name", "epsilon", "share", "clients", "saving_rate", "transition"},
    "Adaptive": {"quantile", "step", "bit_noise", "server_rate", "server_momentum"},
    "Privacy": {
        *("method", "composition", "accountant", "delta", "spending_rate", "clip_norm", "clipping", "clip_unit"),
        *("budgets", "colluders", "shape", "end_ratio", "saving_rate", "transition", "groups", "budgets_file"),
        *("budget_levels", "adaptive"),
    },
}
# What a result does not depend on: how its file was written, where its data lies, what it computes on, who
# keeps books, and where one's own modules are.
IRRELEVANT = {"Config": {"format", "ledger", "code"}, "FederationTable": {"data"}, "Training": {"device", "workers"}}


def config_digest(config: Config) -> str:
    """Return the SHA-256 of all that a run's result depends on."""
    content = _content(config)
    for key in unread_keys(config.privacy.method):
        content["privacy"].pop(key, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _content(section: Section) -> dict[str, Any]:
    kind = type(section).__name__
    first, irrelevant = FIRST_KEYS.get(kind, set()), IRRELEVANT.get(kind, set())
    content = {}
    for name, default in _defaults(type(section)).items():
        value = getattr(section, name)
        is_later_default = name not in first and value == default
        if value is not None and name not in irrelevant and not is_later_default:
            content[name] = _plain(value)
    return content


@cache
def _defaults(kind: type[Section]) -> dict[str, Any]:
    """Of all keys; made once, since thousands of cells have their names from them."""
    return {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return _content(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value
