"""What no run could do, refused before anything is done."""

from __future__ import annotations

from pathlib import Path

from nestegg.checks import one_of, positive, probability, whole
from nestegg.configuration.config import DIVIDING, Config, FederationTable, is_own, is_parquet
from nestegg.configuration.method_keys import PLANNER_KEYS, owner_of, unread_keys
from nestegg.errors import InputError
from nestegg.named import is_named

# Words that training knows, which takes torch to import; a test keeps them equal.
CHOICES = {
    ("federation", "partition"): ("dirichlet", "iid", "shards"),
    ("federation", "tested_on"): ("test", "validation"),
    ("training", "schedule"): ("cosine", "constant"),
    ("training", "precision"): ("fp32", "bf16"),
    ("training", "engine"): ("auto", "loop", "dense"),
    ("privacy", "clipping"): ("per-layer", "flat"),
    ("privacy", "clip_unit"): ("gradient", "update"),
}
MOST_CLASSES = 1_000_000  # a slip beyond, for which no machine has the memory
DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "adult")
MODELS = (
    "linear",
    "softmax",
    "mlp",
    "cnn",
    "tanh-cnn",
    "tanh-cnn-groupnorm",
    "tanh-cnn-standardised",
    "tanh-cnn-head",
    "resnet20",
)
_OWN = ", or 'module:function'"  # in the place of a word
FEATURES = ("oriented-gradients", "mirrored-gradients", "adult-hats")


def check_method_keys(config: Config) -> None:
    """Refuse keys that belong to another method than the configured one, and parameters that are given twice."""
    given, method = config.privacy.model_fields_set, config.privacy.method
    for key in unread_keys(method):
        if key in given:
            raise InputError(f"privacy.{key} belongs to the method {owner_of(key)!r}; privacy.method = {method!r}.")
    for key in PLANNER_KEYS:
        if key in given and config.privacy.planner:
            raise InputError(f"privacy.{key} and privacy.planner are both given; one of them must go.")


def check_config(config: Config) -> None:
    """Refuse what no run could do, as far as it can be known without data, model and plan."""
    check_method_keys(config)
    training, privacy = config.training, config.privacy
    whole("training.seed", training.seed, 0, 2**63 - 1)
    whole("training.local_epochs", training.local_epochs, 1)
    whole("training.batch_size", training.batch_size, 1)
    positive("training.learning_rate", training.learning_rate)
    if not 0.0 <= training.momentum < 1.0:
        raise InputError(f"training.momentum = {training.momentum!r} must be at least 0 and below 1.")
    if training.workers is not None:
        whole("training.workers", training.workers, 1, 256)
    whole("privacy.colluders", privacy.colluders, 0)
    for (section, key), allowed in CHOICES.items():
        one_of(f"{section}.{key}", getattr(getattr(config, section), key), allowed)
    if config.federation.partition == "dirichlet":
        positive("federation.dirichlet", config.federation.dirichlet)
    if config.federation.samples_per_client is not None:
        whole("federation.samples_per_client", config.federation.samples_per_client, 2)
    test = config.federation.test
    if test is not None and Path(test).resolve() == Path(config.federation.dataset).resolve():
        raise InputError(
            f"federation.test = {test!r} is the clients' own data, and what is measured on it has no noise; give data "
            "that is public, or none."
        )
    if config.federation.held_out is not None:
        probability("federation.held_out", config.federation.held_out)
        if not training.reproducible or is_own(config.federation.dataset):
            raise InputError(
                f"federation.held_out = {config.federation.held_out!r} measures on clients' own data: it is for "
                "simulations, with training.reproducible = true and data that is divided among clients."
            )
    if config.model.name is not None and not is_named(config.model.name):
        one_of("model.name", config.model.name, MODELS, _OWN)
    if config.model.features is not None and not is_named(config.model.features):
        one_of("model.features", config.model.features, FEATURES, _OWN)
    if config.federation.validation is not None:
        whole("federation.validation", config.federation.validation, 1)
    if config.federation.tested_on == "validation" and config.federation.validation is None:
        raise InputError("federation.tested_on = 'validation' needs federation.validation, a number of samples.")
    if not is_own(config.federation.dataset):
        one_of("federation.dataset", config.federation.dataset, DATASETS, f", a file that ends in .parquet{_OWN}")
    _check_own(config.federation)


def check_undivided(federation: FederationTable) -> None:
    """Refuse what says how data is divided among clients, where they have their own."""
    given = [key for key in DIVIDING if key in federation.model_fields_set and getattr(federation, key) is not None]
    if given:
        raise InputError(f"federation.{given[0]} is for data that is divided among clients; here they have their own.")


def _check_own(federation: FederationTable) -> None:
    """Refuse keys of a file of clients that are missing, or have no file."""
    for key in ("client_column", "target_column", "test"):
        value = getattr(federation, key)
        if is_parquet(federation.dataset) and value is None and key != "test":
            raise InputError(f"federation.{key} is missing: federation.dataset = {federation.dataset!r} needs it.")
        if not is_parquet(federation.dataset) and value is not None:
            raise InputError(f"federation.{key} = {value!r} belongs to a Parquet file as federation.dataset.")
    if federation.test is not None and not is_parquet(federation.test):
        raise InputError(f"federation.test = {federation.test!r} must be a Parquet file.")
    if federation.classes is not None:
        whole("federation.classes", federation.classes, 1, MOST_CLASSES)
        if not is_own(federation.dataset):
            raise InputError(f"federation.classes = {federation.classes} belongs to data of one's own.")
    if is_parquet(federation.dataset):
        check_undivided(federation)
