"""Data and losses of one's own, as a configuration names them: a Parquet file of clients, or "module:function"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestegg.checks import one_of
from nestegg.configuration.config import LOSSES, Config, changed, is_own
from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.named import called, is_named, load_object

if TYPE_CHECKING:
    from torch import Size, Tensor

    from nestegg.data import Dataset
    from nestegg.data.features import Features
    from nestegg.data.sources import Source

_RETURNS = "a nestegg.data.Dataset, a source of clients, or a pair of clients and public test data"


@dataclass(frozen=True, eq=False)
class OwnClients:
    """Clients who bring their own data, and public test data.

    Attributes:
        source: the clients, by name.
        test: public inputs and targets, if there are any.
        classes: that are told apart; 1 where targets are numbers.
    """

    source: Source
    test: tuple[Tensor, Tensor] | None
    classes: int

    @property
    def shape(self) -> Size:
        """Shape of one input."""
        return self._example.shape[1:]

    @property
    def are_whole(self) -> bool:
        """Whether inputs are whole numbers, such as tokens."""
        return not self._example.is_floating_point()

    def with_features(self, features: Features) -> OwnClients:
        """Return the same with features in the place of inputs."""
        from nestegg.data.features import extracted
        from nestegg.data.sources import as_source
        from nestegg.training.featured import with_features

        test = self.test and (extracted(features, self.test[0]), self.test[1])
        return replace(self, source=as_source(with_features(self.source, features)), test=test)

    @cached_property
    def _example(self) -> Tensor:
        """Inputs of the test data, or of the first client whose data can be read."""
        from nestegg.training.samples import as_pair

        if self.test is not None:
            return self.test[0]
        for name in self.source.names[:10]:
            try:
                inputs, targets = as_pair("a client", self.source.load(name))
            except Exception:
                continue  # it will count as zero
            if len(targets):
                return inputs
        raise InputError("federation.dataset has no client whose data can be read.")


def load_data(config: Config) -> Dataset | OwnClients:
    """Load what a configuration trains on: data to be divided among clients, or clients with data of their own."""
    needs("the data of a federation", "train")
    from nestegg.data import held_back

    data, federation, features = _loaded(config), config.federation, load_features(config)
    if isinstance(data, OwnClients):
        if federation.validation is not None:
            raise InputError(f"federation.validation = {federation.validation} is for data that is divided.")
        return data if features is None else data.with_features(features)
    if federation.validation is not None:
        data = held_back(data, federation.validation, as_test=federation.tested_on == "validation")
    if features is None:
        return data
    from nestegg.data.features import featured

    return featured(data, features)


def load_features(config: Config) -> Features | None:
    """Return what a configuration trains on in the place of inputs, if anything."""
    name = config.model.features
    if name is None:
        return None
    from nestegg.data.features import FEATURES, check_features

    if is_named(name):
        return check_features("model.features", load_object("model.features", name, config.code))
    return FEATURES[one_of("model.features", name, FEATURES)]


def _loaded(config: Config) -> Dataset | OwnClients:
    from nestegg.data import Dataset, load_dataset

    federation = config.federation
    if not is_own(federation.dataset):
        return load_dataset(federation.dataset, federation.data)
    if not is_named(federation.dataset):
        return _from_parquet(config)
    made = called("federation.dataset", federation.dataset, config.code)
    if isinstance(made, Dataset):
        if federation.classes not in (None, made.classes):
            raise InputError(f"federation.classes = {federation.classes} must be that of the dataset, {made.classes}.")
        return _checked(federation.dataset, made)
    clients, test = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    return OwnClients(_as_source(federation.dataset, clients), pair := _as_test(test), _classes(config, pair))


def own_names(config: Config) -> Sequence[str]:
    """Return the names of the clients in one's own data; none where data is divided among clients."""
    plain = changed(config, "model", features=None)  # which change no name
    data = load_data(plain) if is_own(config.federation.dataset) else None
    return data.source.names if isinstance(data, OwnClients) else ()


def load_loss(config: Config) -> Callable[[Any, Any], Any] | None:
    """Load the loss that a configuration names, if it names one."""
    name = config.training.loss
    if name is None:
        return None
    if name in LOSSES:
        from nestegg.training import losses

        return getattr(losses, name)  # type: ignore[no-any-return]
    if not is_named(name):
        raise InputError(f"training.loss = {name!r} must be {', '.join(LOSSES)}, or have the form 'module:function'.")
    return NamedLoss(name, load_object("training.loss", name, config.code))


@dataclass(frozen=True)
class NamedLoss:
    """A loss by name. One output for each sample is compared with one target for each, not with those of all others."""

    name: str
    function: Callable[[Any, Any], Any]

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of outputs and targets."""
        is_single = outputs.shape == (*targets.shape, 1)
        loss: Tensor = self.function(outputs.squeeze(-1) if is_single else outputs, targets)
        return loss

    def for_client(self, targets: Tensor) -> NamedLoss:
        """Return the loss of one client, where it is made for each."""
        from nestegg.training.losses import loss_for

        return NamedLoss(self.name, loss_for(self.function, targets))


def _from_parquet(config: Config) -> OwnClients:
    import numpy as np

    from nestegg.data import from_parquet
    from nestegg.data.arrow import column_type
    from nestegg.data.parquet import read_table

    federation = config.federation
    client, target = federation.client_column or "", federation.target_column or ""
    table = read_table(Path(federation.dataset))
    for key, name in (("client_column", client), ("target_column", target)):
        column_type(table, f"federation.{key}", name)
    features = [name for name in table.schema.names if name not in (client, target)]
    if federation.test is not None:
        public = read_table(Path(federation.test)).schema.names
        if missing := [name for name in features if name not in public]:
            raise InputError(
                f"federation.test = {federation.test!r} lacks the column {missing[0]!r} of {federation.dataset!r}."
            )
    source, test = from_parquet(federation.dataset, client=client, target=target), None
    if federation.test is not None:
        tested = from_parquet(federation.test, client=client, target=target, features=features)
        inputs, targets, _ = tested.load_rows(np.arange(len(tested.names)))
        test = _as_test((inputs, targets))
    return OwnClients(source, test, _classes(config, test))


def _checked(name: str, data: Dataset) -> Dataset:
    for what, x, y in (("training", data.train_x, data.train_y), ("test", data.test_x, data.test_y)):
        if not len(y) or len(x) != len(y) or x.shape[1:] != data.shape:
            raise InputError(
                f"federation.dataset = {name!r} returned {len(x)} {what} inputs of shape {tuple(x.shape[1:])} and "
                f"{len(y)} targets; there must be as many, at least one, and all of one shape."
            )
    return data


def _as_source(name: str, clients: Any) -> Source:
    from nestegg.data.sources import as_source

    if isinstance(clients, list):
        clients = {f"client-{number}": data for number, data in enumerate(clients, 1)}
    if not isinstance(clients, Mapping) and not all(hasattr(clients, part) for part in ("names", "load")):
        raise InputError(
            f"federation.dataset = {name!r} returned a {type(clients).__name__}; it must return {_RETURNS}."
        )
    source: Source = as_source(clients)
    if not len(source.names):
        raise InputError(f"federation.dataset = {name!r} returned no clients.")
    return source


def _as_test(test: Any) -> tuple[Tensor, Tensor] | None:
    from nestegg.training.samples import as_pair

    try:
        return None if test is None else as_pair("the test data", test)
    except (TypeError, ValueError, IndexError, RuntimeError, KeyError):
        raise InputError(f"test data of type {type(test).__name__} must be a pair of inputs and targets.") from None


def _classes(config: Config, test: tuple[Tensor, Tensor] | None) -> int:
    """How many classes there are; labels of clients are not looked at, for they are not public."""
    if config.federation.classes is not None:
        return config.federation.classes
    if test is None:
        raise InputError("federation.classes is missing: without public test data it cannot be known.")
    return 1 if test[1].is_floating_point() else int(test[1].max()) + 1
