"""How good a model is: on public test data, by its loss, its accuracy and one's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nestegg.errors import InputError
from nestegg.training.local import Loss, Samples
from nestegg.training.samples import as_pair

Metric = Callable[[Tensor, Tensor], Any]
_AT_A_TIME = 500  # samples


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Public data to measure a model on after each round, and what to measure.

    Attributes:
        inputs: of the test samples.
        targets: classes, or numbers: accuracy is measured of classes alone.
        metrics: functions of all outputs and all targets that return a number, by name.
        by_group: for simulations, data that clients of a budget group held back, by the group's name: does privacy cost
            the strict more? It is clients' own data, so it is measured in reproducible runs alone.

    >>> import torch
    >>> x, y = torch.zeros(3, 2), torch.tensor([1.0, 2.0, 3.0])
    >>> Evaluation(x, y, metrics={"error": lambda outputs, y: (outputs.squeeze(-1) - y).abs().mean()}).targets.dtype
    torch.float32
    """

    inputs: Any
    targets: Any
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    by_group: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs, targets = as_pair("test", (self.inputs, self.targets))
        if not len(targets):
            raise InputError("test has no samples; leave it out where there is no public data.")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "targets", targets)
        for name, metric in self.metrics.items():
            if not callable(metric):
                raise InputError(f"metrics: {name!r} must be a function of outputs and targets.")
        object.__setattr__(self, "by_group", {name: Evaluation(*pair) for name, pair in self.by_group.items()})

    @classmethod
    def of(cls, test: Evaluation | Any | None) -> Evaluation | None:
        """Return what is to be evaluated: as it is given, a pair of inputs and targets, or nothing."""
        if test is None or isinstance(test, cls):
            return test
        if not (isinstance(test, tuple | list) and len(test) == 2):
            raise InputError("test must be a pair of inputs and targets, or an Evaluation.")
        return cls(*test)

    def check(self, model: nn.Module, loss: Loss) -> None:
        """Refuse what cannot be measured, tried on two samples, before any round is paid for."""
        x, y = self.inputs[:2], self.targets[:2]
        try:
            measured(model, (x, y), loss)
            with torch.no_grad():
                outputs = model(x.to(next(model.parameters()).device)).cpu()
        except Exception as error:
            raise InputError(f"test: the model cannot be measured: {type(error).__name__}: {error}.") from None
        for name, metric in self.metrics.items():
            try:
                float(metric(outputs, y))
            except Exception as error:
                raise InputError(f"metrics: {name!r} failed: {type(error).__name__}: {error}.") from None

    def measured(self, model: nn.Module, loss: Loss) -> Measures:
        """Return how good a model is on the public data."""
        return measured(model, (self.inputs, self.targets), loss, self.metrics)


@dataclass(frozen=True)
class Measures:
    """What was measured; accuracy is in percent, and None where targets are no classes."""

    accuracy: float | None
    loss: float
    metrics: dict[str, float]


def measured(model: nn.Module, samples: Samples, loss: Loss, metrics: Mapping[str, Metric] | None = None) -> Measures:
    """Measure a model, some samples at a time; one's own metrics see all outputs at once."""
    x, y = samples
    right, total, kept, images = 0, 0.0, [], convolves(model)
    device = next((parameter.device for parameter in model.parameters()), x.device)
    model.eval()
    with torch.no_grad():
        for start in range(0, len(y), _AT_A_TIME):
            inputs, targets = (part[start : start + _AT_A_TIME].to(device) for part in (x, y))
            outputs = model(channels_last(inputs) if images else inputs)
            total += float(loss(outputs, targets)) * len(targets)
            right += int((predictions(outputs) == targets).sum()) if is_classes(targets) else 0
            kept += [outputs.cpu()] if metrics else []
        own = {name: _number(metric, torch.cat(kept), y.cpu()) for name, metric in (metrics or {}).items()}
    return Measures(100.0 * right / len(y) if is_classes(y) else None, total / len(y), own)


def _number(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    """What a metric says, or that it says nothing: a round that is paid for must not be lost for it."""
    try:
        return float(metric(outputs, targets))
    except Exception:
        return float("nan")


def is_classes(targets: Tensor) -> bool:
    """Return whether targets are one class for each sample."""
    return targets.dim() == 1 and not targets.is_floating_point()


def predictions(outputs: Tensor) -> Tensor:
    """Return predicted labels."""
    return (outputs.squeeze(-1) > 0).long() if outputs.shape[-1] == 1 else outputs.argmax(dim=-1)


def convolves(model: nn.Module) -> bool:
    """Return whether there are convolutions in it."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def channels_last(images: Tensor) -> Tensor:
    """Return the same images with the channels of a pixel side by side: convolutions on a CPU are much faster so."""
    if images.dim() != 4:
        return images
    return torch.empty_like(images, memory_format=torch.channels_last).copy_(images)
