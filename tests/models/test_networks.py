"""Networks that bear noise: small, from zero where that suits, and without statistics of what they saw."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.models import make_model
from nestegg.models.networks import MODELS, StandardisedConv2d


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


FAMILY = {"tanh-cnn": 26_010, "tanh-cnn-groupnorm": 26_106, "tanh-cnn-standardised": 26_106, "tanh-cnn-head": 5_130}


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 40, 33), (1, 1, 1)])
def test_the_tanh_networks_take_any_image_and_samples_do_not_see_each_other(name: str, shape: tuple[int, ...]) -> None:
    model = make_model(name, torch.Size(shape), 10, 0)
    if shape == (1, 28, 28):
        assert Layout.of(model).size == FAMILY[name]
    for parameter in model.parameters():  # a head starts at zero, and would hide everything
        nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(3))
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))
    together = model(x)
    assert bool(together.std() > 0.0)
    torch.testing.assert_close(together[1:2], model(x[1:2]))
    with pytest.raises(InputError, match=f"{name!r} needs images"):
        make_model(name, torch.Size((108,)), 2, 0)


def test_group_normalisation_makes_what_a_convolution_says_independent_of_contrast() -> None:
    """Where biases are zero, twice the weights of a convolution or twice its input change nothing."""
    x = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    for name in ("tanh-cnn-groupnorm", "tanh-cnn-standardised"):
        model = make_model(name, torch.Size((1, 28, 28)), 10, 0)
        convolutions = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
        for one in convolutions:
            assert one.bias is not None
            nn.init.zeros_(one.bias)
        before = model(x)
        torch.testing.assert_close(model(7.0 * x), before, rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            convolutions[0].weight.mul_(3.0)
        torch.testing.assert_close(model(x), before, rtol=1e-3, atol=1e-3)
    plain = make_model("tanh-cnn", torch.Size((1, 28, 28)), 10, 0)
    assert bool(((plain(7.0 * x) - plain(x)).abs() > 0.01).any())


def test_standardised_weights_have_mean_zero_and_the_variance_of_one_over_their_number() -> None:
    one = StandardisedConv2d(3, 5, 4, bias=False)
    with torch.no_grad():
        one.weight.mul_(9.0).add_(2.0)
        kernel = one(torch.eye(48).view(48, 3, 4, 4)).view(48, 5).double()  # the answers to single pixels
    torch.testing.assert_close(kernel.mean(dim=0), torch.zeros(5).double(), rtol=0.0, atol=1e-6)
    torch.testing.assert_close(kernel.square().sum(dim=0), torch.ones(5).double(), rtol=1e-5, atol=0.0)
    with torch.no_grad():
        nn.init.constant_(one.weight, 2.0)  # nothing to divide by
    assert bool(one(torch.rand(1, 3, 9, 9)).isfinite().all())


def test_a_head_trains_one_layer_from_zero_on_convolutions_that_follow_from_the_seed() -> None:
    one, same, other = (make_model("tanh-cnn-head", torch.Size((1, 28, 28)), 10, seed) for seed in (1, 1, 2))
    fixed = {name for name, value in one.named_parameters() if not value.requires_grad}
    trained = [value for value in one.parameters() if value.requires_grad]
    assert [(value.shape, bool(value.any())) for value in trained] == [((10, 512), False), ((10,), False)]
    assert all(torch.equal(one.state_dict()[name], same.state_dict()[name]) for name in fixed)
    assert any(not torch.equal(one.state_dict()[name], other.state_dict()[name]) for name in fixed)
    layout = Layout.of(one)
    assert (layout.size, len(layout.layers)) == (512 * 10 + 10, 1)


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
