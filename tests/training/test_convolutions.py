"""Convolutions by the compiled kernel, beside torch's in double precision."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nestegg.training import convolutions
from nestegg.training.convolutions import CompiledConvolution, is_compiled
from nestegg.training.layers import compiled_layers
from tests.federations import DENSE
from tests.training.test_layers import images, in_set, with_gradients

pytestmark = pytest.mark.skipif(not DENSE, reason="the kernel needs a C compiler")


@pytest.fixture(autouse=True)
def _always(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolve by the kernel also where torch is faster, but in the test of that."""
    if "faster" not in request.node.name:
        monkeypatch.setattr(convolutions, "_LEAST_PIXELS", 1)
        monkeypatch.setattr(convolutions, "_INPUTS_A_TILE", 1_000)


def convolution(inputs: int, outputs: int, side: int, bias: bool = True) -> nn.Conv2d:
    torch.manual_seed(3)
    return nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=bias)


def compiled(part: nn.Conv2d, name: str | None = None) -> CompiledConvolution:
    return CompiledConvolution.of(copy.deepcopy(part), in_set(name or DENSE[0]))


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
    for ours, exact in zip(with_gradients(compiled(part, name), x), truth, strict=True):
        assert (ours.double() - exact).norm() <= 3e-5 * exact.norm()


@pytest.mark.parametrize("side", [3, 5])
def test_rounding_costs_little_more_than_torchs(side: int) -> None:
    """As ten times torch's error, over many more products than tests of shapes have."""
    part, x = convolution(32, 64, side), images((20, 32, 14, 14))
    truth = with_gradients(copy.deepcopy(part).double(), x.double())
    ours, torchs = (with_gradients(one, x) for one in (compiled(part), part))
    for mine, theirs, exact in zip(ours, torchs, truth, strict=True):
        assert (mine - exact).norm() <= 10.0 * (theirs - exact).norm() + 1e-7 * exact.norm()


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (2, 32, 5, 7), (9, 48, 14, 14)])
def test_instruction_sets_agree_to_the_bit(shape: tuple[int, ...], side: int) -> None:
    part, x = convolution(shape[1], 32, side), images(shape)
    fused = [name for name in DENSE if name != "baseline"]  # it has no product and sum with one rounding
    results = [with_gradients(compiled(part, name), x) for name in fused]
    for result in results:
        assert all(torch.equal(one, first) for one, first in zip(result, results[0], strict=True))


@pytest.mark.parametrize("side", [3, 5])
def test_a_sample_is_convolved_by_itself(side: int) -> None:
    """Wherever in a batch it is, and in whichever block of tiles."""
    part, x = compiled(convolution(16, 16, side)), images((7, 16, 18, 11))
    together = part(x)
    for i in range(len(x)):
        assert torch.equal(together[i], part(x[i : i + 1].contiguous(memory_format=torch.channels_last))[0])


@pytest.mark.parametrize("name", DENSE)
def test_what_is_not_a_number_stays_with_its_sample(name: str) -> None:
    part, x = compiled(convolution(16, 16, 3), name), images((3, 16, 9, 9))
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
    assert torch.equal(compiled(part)(x), part(x))


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


@pytest.mark.parametrize(
    ("part", "x"),
    [
        (nn.Conv2d(16, 16, 3, padding=1), images((2, 64, 4, 4))),
        (nn.Conv2d(16, 16, 3, padding=1).double(), images((2, 16, 4, 4))),
        (nn.Conv2d(16, 16, 3, padding=1).bfloat16(), images((2, 16, 4, 4))),
    ],
)
def test_images_that_are_not_for_it_are_refused_by_torch(part: nn.Conv2d, x: Tensor) -> None:
    """The kernel would read and write beyond what there is."""
    with pytest.raises(RuntimeError):
        CompiledConvolution.of(part, in_set(DENSE[0]))(x)


def test_parameters_may_be_exchanged() -> None:
    part, x = compiled(convolution(16, 32, 3)), images((2, 16, 8, 8))
    assert part.bias is not None
    part.weight, part.bias = nn.Parameter(part.weight[:24].clone()), nn.Parameter(part.bias[:24].clone())
    expected = nn.functional.conv2d(x, part.weight, part.bias, padding=1)
    assert torch.equal(part(x), expected)


def test_another_default_precision_changes_nothing() -> None:
    part, x = compiled(convolution(16, 16, 3)), images((2, 16, 8, 8))
    model = nn.Sequential(part, nn.MaxPool2d(2), nn.ReLU())
    compiled_layers(model, in_set(DENSE[0]))
    expected, slopes = model(x), torch.autograd.grad(model(x).sum(), part.weight)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(model(x), expected)
        assert torch.equal(*torch.autograd.grad(model(x).sum(), part.weight), *slopes)
    finally:
        torch.set_default_dtype(torch.float32)


def slope_of_slopes(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Derivatives by parameters of the length of derivatives by inputs."""
    x = x.detach().clone().requires_grad_()
    (slopes,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
    return list(torch.autograd.grad(slopes.pow(2).sum(), list(model.parameters())))


def test_derivatives_of_derivatives_are_torchs() -> None:
    """As a model takes them that differentiates in its own forward."""
    torch.manual_seed(5)
    model = nn.Sequential(
        convolution(16, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU(), convolution(16, 16, 5)
    )
    x, torchs = images((2, 16, 9, 11)), copy.deepcopy(model)
    assert compiled_layers(model, in_set(DENSE[0]))
    for ours, theirs in zip(slope_of_slopes(model, x), slope_of_slopes(torchs, x), strict=True):
        assert (ours - theirs).norm() <= 1e-3 * theirs.norm() + 1e-6


def test_what_holds_a_convolution_holds_the_compiled_one() -> None:
    """Under both of its names, with what else was put on it."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = convolution(16, 16, 3)
            self.first.scale = nn.Parameter(torch.ones(1))
            self.listed = [self.first]

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.listed[0](self.second(self.first(x))) * self.first.scale
            return y

    model, x = Twice(), images((2, 16, 8, 8))
    names, expected = [name for name, _ in model.named_parameters()], model(x)
    assert compiled_layers(model, in_set(DENSE[0]))
    assert type(model.listed[0]) is type(model.second) is CompiledConvolution
    assert [name for name, _ in model.named_parameters()] == names
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_mapped_models_are_left_to_torch() -> None:
    part, x = compiled(convolution(16, 16, 3)), torch.randn(3, 2, 16, 8, 8)
    found = torch.vmap(part)(x)
    torch.testing.assert_close(found[1], part(x[1]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 16, 3, 3), (1, 512, 4, 4)])
def test_where_torch_is_faster_it_convolves(shape: tuple[int, ...]) -> None:
    part, x = convolution(shape[1], 16, 3), images(shape)
    assert torch.equal(compiled(part)(x), part(x))


def test_what_has_hooks_stays() -> None:
    part = convolution(16, 16, 3)
    part.register_forward_hook(lambda *_: None)
    assert not compiled_layers(nn.Sequential(part, nn.Flatten()), in_set(DENSE[0]))
