"""Ideas that are tried: each does what it says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from bench.trials.clients import LargestCoordinates, Normalised, PublicMask, Shares
from bench.trials.engine import equipped, linear_slope, step, train
from bench.trials.idea import Idea, LocalIdea, Released, Step
from bench.trials.opponents import Bounded, ControlVariates, SharpnessAware, reach
from bench.trials.server import Adam, LastModels, Momentum, MovingAverage, Shrinkage, shrunk
from torch import Tensor
from torch.nn import functional

from nestegg import Federation, InputError, plan
from nestegg.audit.watching import Watched
from nestegg.models import make_model
from tests.bench.worlds import GROUPS, Clients, world


def test_plain_steps_are_those_of_the_product(clients: Clients) -> None:
    ours, theirs = (train(world(idea, clients), idea).model for idea in (LocalIdea(), Idea()))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 4])
def test_the_gradient_by_hand_is_that_of_autograd(outputs: int) -> None:
    rng = torch.Generator().manual_seed(2)
    x, weights = torch.randn(9, 5, generator=rng), torch.randn(outputs * 6, generator=rng).requires_grad_()
    y = torch.randint(max(outputs, 2), (9,), generator=rng)
    values = x @ weights[: outputs * 5].view(outputs, 5).T + weights[outputs * 5 :]
    if outputs == 1:
        loss, expected = functional.binary_cross_entropy_with_logits(values[:, 0], y.float()), y[:, None].float()
    else:
        loss, expected = functional.cross_entropy(values, y), functional.one_hot(y, outputs).float()
    (slope,) = torch.autograd.grad(loss, weights)
    torch.testing.assert_close(linear_slope(weights.detach(), inputs=x, expected=expected), slope)


def path(idea: Idea, clients: Clients) -> tuple[list[Tensor], Tensor]:
    """The models of a training after each round, and the one that is used."""
    federation = world(idea, clients, rounds=4)
    state, models = federation.start(), []
    while state.round < 4:
        state = step(federation, idea, state)
        models.append(state.model)
    return models, idea.final(state.model)


def test_averages_are_averages_of_the_models_of_nothing(clients: Clients) -> None:
    models, last = path(Idea(), clients)
    for idea, weights in (
        (LastModels(2), [0, 0, 1 / 2, 1 / 2]),
        (MovingAverage(power=0.0), [1 / 4] * 4),
        (MovingAverage(keep=0.5), [1 / 16, 1 / 8, 1 / 4, 1 / 2]),  # the first model is zero
    ):
        same, average = path(idea, clients)
        assert torch.equal(same[-1], last)
        torch.testing.assert_close(average, sum((w * m for w, m in zip(weights, models, strict=True)), 0 * last))


def test_momentum_sums_and_a_low_pass_filter_averages(clients: Clients) -> None:
    federation, one = world(Idea(), clients), torch.arange(650.0)
    plain, damped = Momentum(0.5), Momentum(0.5, damped=True)
    for idea, expected in ((plain, [1.0, 1.5, 1.75]), (damped, [1.0, 1.0, 1.0])):
        idea.begin(federation)
        found = [idea.next(Released(t, torch.zeros(650), one, 1.0, 0.1)) for t in (1, 2, 3)]
        for model, times in zip(found, expected, strict=True):
            torch.testing.assert_close(model, times * one)


def test_adam_takes_the_noise_out_of_the_second_moment(clients: Clients) -> None:
    """Coordinates with a signal get steps of one size, whatever it is; pure noise gets no larger steps for it."""
    rng, signal = torch.Generator().manual_seed(3), torch.zeros(650)
    signal[:200], signal[200:400] = 5.0, 20.0
    adam = Adam(first=0.0, second=0.99, floor=1e-6)
    adam.begin(world(Idea(), clients))
    for t in range(1, 400):
        update = signal + 3.0 * torch.randn(650, generator=rng)
        adam.next(Released(t, torch.zeros(650), update, 3.0, 0.1))
    moments = (adam.square - adam.noise)[:400].view(2, 200).mean(dim=1).sqrt()
    torch.testing.assert_close(moments, torch.tensor([5.0, 20.0]), rtol=0.1, atol=0.0)
    assert float((adam.square - adam.noise)[400:].mean()) < 0.5  # of 9 that noise had


def test_shrinkage_is_nearer_to_the_truth_and_never_turns_round(clients: Clients) -> None:
    rng = np.random.default_rng(4)
    truth = np.array([[0.3], [1.0], [10.0]]) * rng.standard_normal((3, 500))
    noisy = truth + rng.standard_normal(truth.shape)
    found = shrunk(torch.from_numpy(noisy), 1.0).numpy()
    factors = found[:, 0] / noisy[:, 0]
    np.testing.assert_allclose(factors, np.maximum(0.0, 1.0 - 498 / np.square(noisy).sum(axis=1)))
    risks = [np.square(one - truth).mean(axis=1) for one in (found, noisy)]
    assert (risks[0] < risks[1]).all()
    assert not shrunk(torch.full((1, 10), 0.1), 1.0).any()
    rows = Shrinkage(by_row=True)
    rows.begin(world(Idea(), clients))
    update = torch.cat([torch.tensor([100.0, 0.01]).repeat_interleave(320), torch.full((10,), 7.0)])
    model = rows.next(Released(1, torch.zeros(650), update, 1.0, 0.1))
    assert not model[320:640].any()
    assert model[0] == pytest.approx(100.0 * (1.0 - 62 / (64 * 100.0**2)))
    assert model[-1] == pytest.approx(7.0 * (1.0 - 8 / (10 * 49.0)))


def test_shapes_of_updates(clients: Clients) -> None:
    rng, norms = torch.Generator().manual_seed(5), np.array([1.0, 2.0, 4.0])
    updates, federation = (
        torch.randn(3, 650, generator=rng) * torch.tensor([[0.01], [1.0], [0.0]]),
        world(Idea(), clients),
    )
    longer = Normalised().shape(updates, norms, 1).norm(dim=1)
    assert (longer[:2] > torch.tensor([1.0, 2.0])).all()
    assert longer[2] == 0.0
    shares = Shares(0.2)
    shares.begin(federation)
    parts = shares.shape(updates, norms, 1)
    assert torch.equal(parts[0], updates[0])  # within both norms
    assert float(parts[1, 640:].norm()) == pytest.approx(2.0 * math.sqrt(0.2))
    assert float(parts[1].norm()) == pytest.approx(2.0)
    few = LargestCoordinates(0.1).shape(updates, norms, 1)
    assert int((few[1] != 0.0).sum()) == 65
    assert few[1].abs().sum() == updates[1].abs().sort(descending=True).values[:65].sum()


def test_a_public_mask_is_everybodys_and_another_in_each_round(clients: Clients) -> None:
    idea = PublicMask(0.5, scaled=True)
    watched = Watched(world(idea, clients))
    state = watched.federation.start()
    first, second = idea.mask(1) == 1.0, idea.mask(2) == 1.0
    assert 250 < int(first.sum()) < 400
    assert not torch.equal(first, second)
    for client in range(10):
        assert not watched.contribution(state, [client])[~first].any()
    after = step(watched.federation, idea, state)
    assert not after.model[~first].any()
    assert after.model[first].all()  # all of it has noise


def at(weights: Tensor, start: Tensor, **values: Any) -> Step:
    """A step on the loss ‖w‖²/2, whose gradient is w."""
    plain = Step(client=0, start=start, weights=weights, slope=lambda w: w, rate=0.1, norm=2.0)
    return plain._replace(**values)


def test_gradients_of_opponents() -> None:
    weights, zero = torch.tensor([3.0, 4.0]), torch.zeros(2)
    torch.testing.assert_close(SharpnessAware(0.5).gradient(at(weights, zero)), weights * 1.1)
    assert torch.equal(SharpnessAware(0.5).gradient(at(zero, zero)), zero)
    assert torch.equal(Bounded(0.1).gradient(at(weights, weights)), weights)
    assert torch.equal(Bounded(0.1).gradient(at(weights, zero, norm=5.0)), weights)
    torch.testing.assert_close(Bounded(0.1).gradient(at(weights, zero)), weights * 2.0)
    assert reach(3, 0.0) == 3.0
    assert reach(2, 0.5) == 1.0 + 1.5


def test_control_variates_are_mean_gradients(clients: Clients) -> None:
    """One step a round, no momentum, no clipping, no noise: SCAFFOLD by its formulas."""
    idea = ControlVariates(steps=1)
    federation = world(idea, clients, private=False, batch_size=1000, momentum=0.0, schedule="constant")

    def slopes(model: Tensor) -> Tensor:
        found = [(x.flatten(1), functional.one_hot(y, 10).float()) for x, y in clients]
        return torch.stack([linear_slope(model, inputs=x, expected=y) for x, y in found])

    first = step(federation, idea, federation.start())
    own = slopes(torch.zeros(650))
    torch.testing.assert_close(torch.stack([idea.own[client] for client in range(10)]), own, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(idea.common, own.mean(dim=0), rtol=1e-3, atol=1e-5)
    second = step(federation, idea, first)
    moved = slopes(first.model) - own + own.mean(dim=0)
    torch.testing.assert_close(second.model - first.model, -0.2 * moved.mean(dim=0), rtol=1e-3, atol=1e-5)


def test_ideas_of_local_training_are_refused_on_other_models(clients: Clients) -> None:
    federation = Federation(plan(GROUPS, rounds=2), make_model("mlp", torch.Size((1, 8, 8)), 10, seed=1), clients)
    with pytest.raises(InputError, match="linear models"):
        equipped(federation, LocalIdea())
