"""Networks that bear noise: small, from zero where that suits, and without statistics of what they saw."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nestegg.errors import InputError
from nestegg.models import make_model
from nestegg.models.networks import MODELS


@pytest.mark.parametrize(("classes", "outputs"), [(10, 10), (2, 1)])
def test_softmax_starts_at_zero(classes: int, outputs: int) -> None:
    model = make_model("softmax", torch.Size((3, 4)), classes, 7)
    assert [value.shape for value in model.parameters()] == [(outputs, 12), (outputs,)]
    assert all(bool((value == 0.0).all()) for value in model.parameters())
    assert any(
        bool((value != 0.0).any()) for value in make_model("linear", torch.Size((3, 4)), classes, 7).parameters()
    )


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [((1, 28, 28), 26_010), ((3, 32, 32), 28_058), ((3, 224, 100), 28_058), ((1, 8, 8), 10_650), ((1, 1, 1), 10_650)],
)
def test_the_tanh_network_is_small_for_any_image(shape: tuple[int, ...], parameters: int) -> None:
    model = make_model("tanh-cnn", torch.Size(shape), 10, 0)
    assert sum(value.numel() for value in model.parameters()) == parameters
    outputs = model(torch.rand(3, *shape))
    assert outputs.shape == (3, 10)
    outputs.square().sum().backward()
    assert all(value.grad is not None and bool((value.grad != 0.0).any()) for value in model.parameters())
    with pytest.raises(InputError, match="'tanh-cnn' needs images"):
        make_model("tanh-cnn", torch.Size((108,)), 2, 0)


def test_on_28_by_28_it_is_that_of_the_paper() -> None:
    """Papernot et al. 2020: pooling of 2 × 2 with stride 1 after both convolutions."""
    model = make_model("tanh-cnn", torch.Size((1, 28, 28)), 10, 0)
    first, second, hidden, last = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    x = torch.rand(5, 1, 28, 28)
    y = nn.functional.max_pool2d(torch.tanh(first(x)), 2, 1)
    y = nn.functional.max_pool2d(torch.tanh(second(y)), 2, 1)
    assert torch.equal(model(x), last(torch.tanh(hidden(y.flatten(1)))))


@pytest.mark.parametrize("name", MODELS)
def test_no_network_keeps_statistics_of_what_it_saw(name: str) -> None:
    model = make_model(name, torch.Size((1, 28, 28)), 10, 0)
    assert not list(model.buffers())
    assert not any(getattr(part, "track_running_stats", False) for part in model.modules())
