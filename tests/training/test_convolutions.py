"""Convolutions by the compiled kernel, beside torch's in double precision."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nestegg.training.convolutions import CompiledConvolution, is_compiled
from nestegg.training.layers import compiled_layers
from tests.federations import DENSE
from tests.training.test_layers import images, in_set, with_gradients

pytestmark = pytest.mark.skipif(not DENSE, reason="the kernel needs a C compiler")


def convolution(inputs: int, outputs: int, side: int, bias: bool = True) -> nn.Conv2d:
    torch.manual_seed(3)
    return nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=bias)


@pytest.mark.parametrize("name", DENSE)
@settings(max_examples=15, deadline=None)
@given(
    samples=st.integers(1, 5),
    channels=st.tuples(st.sampled_from((16, 32, 48)), st.sampled_from((16, 32, 64))),
    height=st.integers(1, 13),
    width=st.integers(1, 13),
    side=st.sampled_from((3, 5)),
    bias=st.booleans(),
)
def test_a_convolution_and_its_derivatives_are_those_in_double_precision(
    name: str, samples: int, channels: tuple[int, int], height: int, width: int, side: int, bias: bool
) -> None:
    part, x = convolution(*channels, side, bias), images((samples, channels[0], height, width))
    truth = with_gradients(copy.deepcopy(part).double(), x.double())
    for ours, exact in zip(with_gradients(CompiledConvolution(part, in_set(name)), x), truth, strict=True):
        assert (ours.double() - exact).norm() <= 1e-5 * exact.norm()


@pytest.mark.parametrize("side", [3, 5])
def test_rounding_costs_little_more_than_torchs(side: int) -> None:
    """As ten times torch's error, over many more products than tests of shapes have."""
    part, x = convolution(32, 64, side), images((20, 32, 14, 14))
    truth = with_gradients(copy.deepcopy(part).double(), x.double())
    ours, torchs = (with_gradients(one, x) for one in (CompiledConvolution(part, in_set(DENSE[0])), part))
    for mine, theirs, exact in zip(ours, torchs, truth, strict=True):
        assert (mine - exact).norm() <= 10.0 * (theirs - exact).norm() + 1e-7 * exact.norm()


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (2, 32, 5, 7), (9, 48, 14, 14)])
def test_instruction_sets_agree_to_the_bit(shape: tuple[int, ...], side: int) -> None:
    part, x = convolution(shape[1], 32, side), images(shape)
    fused = [name for name in DENSE if name != "baseline"]  # it has no product and sum with one rounding
    results = [with_gradients(CompiledConvolution(part, in_set(name)), x) for name in fused]
    for result in results:
        assert all(torch.equal(one, first) for one, first in zip(result, results[0], strict=True))


@pytest.mark.parametrize("side", [3, 5])
def test_a_sample_is_convolved_by_itself(side: int) -> None:
    """Wherever in a batch it is, and in whichever block of tiles."""
    part, x = CompiledConvolution(convolution(16, 16, side), in_set(DENSE[0])), images((7, 16, 18, 11))
    together = part(x)
    for i in range(len(x)):
        assert torch.equal(together[i], part(x[i : i + 1].contiguous(memory_format=torch.channels_last))[0])


@pytest.mark.parametrize("name", DENSE)
def test_what_is_not_a_number_stays_with_its_sample(name: str) -> None:
    part, x = CompiledConvolution(convolution(16, 16, 3), in_set(name)), images((3, 16, 9, 9))
    x[1, 3, 4, 4] = torch.nan
    found = part(x).isnan()
    assert found[1, :, 3:6, 3:6].all()
    assert not found[0].any()
    assert not found[2].any()


@pytest.mark.parametrize(
    "part",
    [
        nn.Conv2d(16, 16, 3),  # smaller images come out
        nn.Conv2d(16, 16, 3, padding=1, stride=2),
        nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(16, 16, (3, 5), padding="same"),
        nn.Conv2d(16, 16, 7, padding=3),
        nn.Conv2d(3, 16, 3, padding=1),
        nn.Conv2d(16, 10, 3, padding=1),
    ],
)
def test_what_the_kernel_does_not_do_stays(part: nn.Conv2d) -> None:
    assert not is_compiled(part)
    assert not compiled_layers(nn.Sequential(part, nn.Flatten()), in_set(DENSE[0]))


@pytest.mark.parametrize("x", [torch.randn(2, 16, 4, 4), images((2, 16, 4, 4)).double(), images((0, 16, 4, 4))])
def test_other_images_are_left_to_torch(x: Tensor) -> None:
    part = convolution(16, 16, 3).to(x.dtype)
    assert torch.equal(CompiledConvolution(part, in_set(DENSE[0]))(x), part(x))


def test_a_model_keeps_its_parameters() -> None:
    inner = nn.Sequential(nn.Conv2d(16, 32, 5, padding="same"), nn.ReLU())
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, padding=1, bias=False), inner)
    before, x = dict(model.named_parameters()), images((2, 3, 12, 12))
    expected = model(x)
    assert compiled_layers(model, in_set(DENSE[0]))
    assert isinstance(model[1], CompiledConvolution)
    assert isinstance(inner[0], CompiledConvolution)
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    torch.testing.assert_close(copy.deepcopy(model)(x), expected, rtol=1e-4, atol=1e-4)


def test_what_has_hooks_stays() -> None:
    part = convolution(16, 16, 3)
    part.register_forward_hook(lambda *_: None)
    assert not compiled_layers(nn.Sequential(part, nn.Flatten()), in_set(DENSE[0]))
