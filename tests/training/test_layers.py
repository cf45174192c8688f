"""Normalisation and pooling by the compiled kernel, beside torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from nestegg import plan
from nestegg.models import make_model
from nestegg.models.networks import RectifiedNorm, Residual
from nestegg.training import kernel
from nestegg.training.layers import CompiledNorm, CompiledPool, compiled_layers
from tests.federations import DENSE, GROUPS, assembled

pytestmark = pytest.mark.skipif(not DENSE, reason="the kernel needs a C compiler")

SHAPES = [(3, 16, 8, 8), (2, 32, 5, 7), (1, 48, 1, 1), (4, 64, 2, 3)]


def images(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3.0 + 1.0
    return made.contiguous(memory_format=torch.channels_last)


def in_set(name: str) -> kernel.Kernel:
    found = kernel.load(name)
    assert found is not None
    return found


def with_gradients(part: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """What a part gives, and derivatives of a weighted sum of it by its inputs and parameters."""
    inputs = tuple(one.detach().clone().requires_grad_() for one in inputs)
    y = part(*inputs)
    weights = images(tuple(y.shape), seed=9).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [*inputs, *part.parameters()], weights)]


def normed(channels: int) -> RectifiedNorm:
    norm = RectifiedNorm(4, channels)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-1.0, 2.0, channels))
        norm.bias.copy_(torch.linspace(1.0, -0.5, channels))
    return norm


def compiled(norm: RectifiedNorm, name: str) -> CompiledNorm:
    return CompiledNorm.of(copy.deepcopy(norm), in_set(name))


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (2, 32, 5, 7), (1, 64, 2, 3)])
def test_pooling_gives_torchs_bits(shape: tuple[int, ...], name: str) -> None:
    x = images(shape)
    x[0, :4] = x[0, :4].round()  # equals, of which the first counts
    x[0, 4:8] = -1.0
    x[0, 8, 0, 0] = 0.0
    torchs = with_gradients(nn.Sequential(nn.MaxPool2d(2), nn.ReLU()), x)
    for ours, theirs in zip(with_gradients(CompiledPool(in_set(name)), x), torchs, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", DENSE)
def test_pooling_keeps_what_is_not_a_number(name: str) -> None:
    x = images((1, 16, 4, 4))
    x[0, 3, 1, 0] = torch.nan
    assert CompiledPool(in_set(name))(x).isnan().nonzero().tolist() == [[0, 3, 0, 0]]


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shortcut", [False, True])
def test_a_norm_and_its_derivatives_are_those_in_double_precision(
    shape: tuple[int, ...], name: str, shortcut: bool
) -> None:
    norm, inputs = normed(shape[1]), [images(shape), *([images(shape, 1)] if shortcut else [])]
    truth = with_gradients(copy.deepcopy(norm).double(), *(one.double() for one in inputs))
    for ours, exact in zip(with_gradients(compiled(norm, name), *inputs), truth, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_instruction_sets_agree_to_the_bit(shape: tuple[int, ...]) -> None:
    norm, inputs = normed(shape[1]), (images(shape), images(shape, 1))
    fused = [name for name in DENSE if name != "baseline"]  # it has no product and sum with one rounding
    results = [with_gradients(compiled(norm, name), *inputs) for name in fused]
    for result in results:
        assert all(torch.equal(one, first) for one, first in zip(result, results[0], strict=True))


def test_a_sample_is_normed_by_itself() -> None:
    norm, x = CompiledNorm.of(normed(16), in_set(DENSE[0])), images((3, 16, 6, 6))
    alone = images((1, 16, 6, 6))
    alone[0] = x[1]
    assert torch.equal(norm(x)[1], norm(alone)[0])


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 16, 4, 4),  # channels are not last
        images((2, 20, 4, 4)),  # not a multiple of sixteen
        images((2, 16, 4, 4)).double(),
        images((0, 16, 4, 4)),
    ],
)
def test_other_images_are_left_to_torch(x: Tensor) -> None:
    norm = normed(x.shape[1]).to(x.dtype)
    assert torch.equal(compiled(norm, DENSE[0])(x), norm(x))
    assert torch.equal(CompiledPool(in_set(DENSE[0]))(x), torch.relu(nn.functional.max_pool2d(x, 2)))


def test_a_model_keeps_the_names_of_its_parameters() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU(), Residual(16, 32)
    )
    names, x = [name for name, _ in model.named_parameters()], images((2, 3, 12, 12))
    before = model(x)
    assert compiled_layers(model, in_set(DENSE[0]))
    assert [type(part).__name__ for part in model] == [
        "Conv2d", "CompiledNorm", "Identity", "CompiledPool", "Identity", "Residual",
    ]  # fmt: skip
    assert isinstance(model[5].first_norm, CompiledNorm)
    assert [name for name, _ in model.named_parameters()] == names
    torch.testing.assert_close(copy.deepcopy(model)(x), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "parts",
    [
        [nn.GroupNorm(4, 16, affine=False), nn.ReLU()],
        [nn.GroupNorm(4, 16), nn.Tanh()],
        [nn.MaxPool2d(3), nn.ReLU()],
        [nn.MaxPool2d(2, stride=1), nn.ReLU()],
        [nn.MaxPool2d(2, padding=1), nn.ReLU()],
        [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()],
    ],
)
def test_what_the_kernel_does_not_do_stays(parts: list[nn.Module]) -> None:
    assert not compiled_layers(nn.Sequential(*parts), in_set(DENSE[0]))


def test_what_has_hooks_stays() -> None:
    norm, block = nn.GroupNorm(4, 16), Residual(16, 16)
    for part in (norm, *block.children()):
        part.register_forward_hook(lambda *_: None)
    assert not compiled_layers(nn.Sequential(norm, nn.ReLU(), block), in_set(DENSE[0]))


def test_an_engine_says_whether_the_kernel_computes_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of one's own may want derivatives of derivatives, and is left to torch."""
    clients = [(images((6, 3, 16, 16), seed), torch.arange(6) % 3) for seed in range(10)]
    made, model = plan(GROUPS, rounds=4, spending_rate=0.9), make_model("resnet20", torch.Size((3, 16, 16)), 3, seed=1)
    settings = {"seed": 5, "reproducible": True, "workers": 1}
    ours = assembled(made, model, clients, **settings)
    own = assembled(made, model, clients, loss=lambda *given: nn.functional.cross_entropy(*given), **settings)
    monkeypatch.setenv(kernel.VARIABLE, "none")
    torchs = assembled(made, model, clients, **settings)
    assert [one.engine.instruction_set for one in (ours, own, torchs)] == [DENSE[0], None, None]
    updates = [one.engine.train_block(one.start().model, [3], 1, 0.05).clone() for one in (ours, torchs)]
    assert (updates[0] - updates[1]).norm() <= 1e-3 * updates[1].norm()
