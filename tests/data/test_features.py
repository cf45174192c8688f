"""Features: beside loops in NumPy, of each sample alone to the bit, and what is no fixed map is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg import InputError
from nestegg.data import load_dataset, oriented_gradients
from nestegg.data.adult import INPUTS, NUMBERS, Range
from nestegg.data.features import FEATURES, check_features, extracted, featured, hat_functions, mirrored_gradients

SHAPES = [(1, 1, 1), (3, 1, 1), (1, 5, 7), (3, 5, 7), (1, 29, 31), (3, 29, 31), (1, 8, 8), (1, 28, 28), (3, 32, 32)]
LONG = (2, 8, 2400)  # features of more than 32,768 numbers, which torch adds up in several threads


def images(shape: tuple[int, ...], count: int = 64, seed: int = 0) -> Tensor:
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(seed))


def standard(numbers: list[float]) -> NDArray[np.float64]:
    row = np.array(numbers)
    found: NDArray[np.float64] = (row - row.mean()) / row.std()
    return found


def by_hand(image: NDArray[np.float64], most: int = 8) -> NDArray[np.float64]:
    """The features of one image, pixel by pixel."""
    colours, height, width = image.shape
    step = max(2, math.ceil(min(height, width) / most))
    rows, columns = (step * math.ceil(side / step) for side in (height, width))

    def pixel(colour: int, row: int, column: int) -> float:  # beyond the border, the nearest one
        return float(image[colour, min(max(row, 0), height - 1), min(max(column, 0), width - 1)])

    energy = np.zeros((8, rows, columns))
    for row in range(rows):
        for column in range(columns):
            # What was made longer has a border of its own, whose pixels repeat.
            right, left = min(column + 1, columns - 1), max(column - 1, 0)
            below, above = min(row + 1, rows - 1), max(row - 1, 0)
            found = [
                (pixel(c, row, right) - pixel(c, row, left), pixel(c, below, column) - pixel(c, above, column))
                for c in range(colours)
            ]
            across, down = max(found, key=lambda one: math.hypot(*one))
            for direction in range(8):
                turn = 2.0 * math.pi * direction / 8
                length = math.hypot(across, down)
                cosine = (across * math.cos(turn) + down * math.sin(turn)) / max(length, 1e-6)
                energy[direction, row, column] = length * max(cosine, 0.0) ** 16
    cells, margin = [], step // 2
    for direction in range(8):
        for top in range(-margin, rows + margin - 2 * step + 1, step):
            for start in range(-margin, columns + margin - 2 * step + 1, step):
                part = energy[direction, max(top, 0) : top + 2 * step, max(start, 0) : start + 2 * step]
                cells.append(math.sqrt(part.sum() / (2 * step) ** 2))
    side = step if colours == 1 else 2 * step
    copy = [
        float(np.mean([pixel(c, i, j) for i in range(top, min(top + side, rows)) for j in range(left, left + side)
                       if j < columns]))
        for c in range(colours) for top in range(0, rows, side) for left in range(0, columns, side)
    ]  # fmt: skip
    return np.concatenate([standard(cells), standard(copy)])


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 9, 11), (3, 12, 10), (2, 17, 9), (1, 28, 28), (3, 32, 32)])
def test_they_are_what_loops_over_pixels_give(shape: tuple[int, ...]) -> None:
    batch = images(shape, 3)
    expected = by_hand(batch[1].double().numpy())
    found = oriented_gradients(batch)[1].double().numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize(("shape", "threads"), [*((shape, 1) for shape in SHAPES), (LONG, 2)])
def test_a_sample_s_features_depend_on_that_sample_alone(shape: tuple[int, ...], threads: int) -> None:
    batch = images(shape, 3 if shape == LONG else 64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = oriented_gradients(batch)
        for rows in (1, 2, 3, 4, 5, 6, 7, 64):
            assert torch.equal(torch.cat([oriented_gradients(part) for part in batch.split(rows)]), together)
        assert torch.equal(oriented_gradients(batch.flip(0)), together.flip(0))
        assert torch.equal(extracted(oriented_gradients, batch), together)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("shape", "length"), [((1, 28, 28), 441), ((3, 32, 32), 560), ((1, 8, 8), 144)])
def test_shapes_and_types(shape: tuple[int, ...], length: int) -> None:
    batch = images(shape, 5)
    found = extracted(oriented_gradients, batch)
    assert (found.shape, found.dtype) == ((5, length), torch.float32)
    assert torch.equal(oriented_gradients(batch.double()), found)
    assert extracted(oriented_gradients, batch[:0]).shape == (0, length)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 200.3, -7.1])
def test_a_flat_image_gives_zeros(shape: tuple[int, ...], value: float) -> None:
    found = oriented_gradients(torch.full((3, *shape), value))
    assert found.abs().max() == 0.0


def test_an_image_beside_a_flat_one_is_not_flat() -> None:
    batch = torch.stack([torch.zeros(1, 8, 8), images((1, 8, 8), 1)[0] * 0.1 + 100.0])
    found = oriented_gradients(batch)
    assert found[0].abs().max() == 0.0
    assert found[1].square().mean() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("shape", [(1, 9, 11), (3, 13, 12), (3, 32, 32)])
def test_mirrored_ones_are_the_mean_of_an_image_and_its_mirror_image(shape: tuple[int, ...]) -> None:
    batch = images(shape, 2)
    found = mirrored_gradients(batch)
    assert torch.equal(found, mirrored_gradients(batch.flip(-1)))
    for row, image in zip(found.double().numpy(), batch.double().numpy(), strict=True):
        mean = (by_hand(image, 6) + by_hand(image[:, :, ::-1], 6)) / 2.0
        np.testing.assert_allclose(row, mean, atol=2e-3)


def test_hats_add_up_to_one_and_follow_a_number_piece_by_piece() -> None:
    rows = torch.stack([torch.linspace(-1.7, 1.7, 40), torch.arange(40.0)], dim=1)
    found = hat_functions([0], knots=5)(rows)
    assert torch.equal(found[:, :2], rows)
    torch.testing.assert_close(found[:, 2:].sum(dim=1), torch.ones(40))
    tops = torch.linspace(-math.sqrt(3.0), math.sqrt(3.0), 5)
    torch.testing.assert_close(found[:, 2:] @ tops, rows[:, 0])  # a line is one of the curves that they can make
    assert hat_functions([0])(torch.tensor([[9.0]]))[0, 1:].abs().max() == 0.0


def test_hats_of_adult_are_of_its_six_numbers() -> None:
    found = FEATURES["adult-hats"](torch.zeros(3, 108))
    assert found.shape == (3, 108 + 6 * 16)
    with pytest.raises(InputError, match="do not fit inputs of shape"):
        FEATURES["adult-hats"](torch.zeros(3, 5))
    assert [list(INPUTS)[i] for i, column in enumerate(INPUTS.values()) if isinstance(column, Range)] == [
        *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    ]
    assert NUMBERS == [0, 10, 27, 63, 64, 65]


def test_nothing_is_fitted_to_the_data() -> None:
    """Fewer samples, in another order: the same rows, also by a function of one's own."""
    data = load_dataset("digits")
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))[:77]
    few = type(data)("few", 10, data.train_x[order], data.train_y[order], data.test_x[:3], data.test_y[:3])

    def own(inputs: Tensor) -> Tensor:
        assert len(inputs) == 1  # so that nobody else's data is in sight
        return inputs.flatten(1).tanh()

    of_images = [features for name, features in FEATURES.items() if name.endswith("gradients")]
    for features in (*of_images, own):
        all_, some = featured(data, features), featured(few, features)
        assert torch.equal(some.train_x, all_.train_x[order])
        assert torch.equal(some.test_x, all_.test_x[:3])
        assert torch.equal(some.train_y, data.train_y[order])


def test_what_a_function_writes_into_is_a_copy() -> None:
    inputs = images((1, 4, 4), 3)
    before = inputs.clone()
    extracted(lambda block: block.mul_(2.0).flatten(1), inputs)
    assert torch.equal(inputs, before)


def test_a_backbone_in_double_precision_gives_single() -> None:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double().requires_grad_(False).eval()
    found = extracted(lambda block: backbone(block.double()), images((1, 4, 4), 3))
    assert (found.dtype, found.shape, found.requires_grad) == (torch.float32, (3, 3), False)


def raising(_: Tensor) -> Tensor:
    raise LookupError("no such table")


def leaving(_: Tensor) -> Tensor:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda x: x.flatten(1) * math.nan, r"^features must be finite numbers; some are not\.$"),
        (lambda x: x.flatten(1) / 0.0, r"^features must be finite numbers; some are not\.$"),
        (lambda x: x.flatten(1)[:-1], r"^features of 5 inputs are 4 vectors; there must be as many\.$"),
        (lambda x: x.sum((1, 2, 3)), r"^features must be one vector of real numbers for every input, all of one leng"),
        (lambda x: x.sum(), r"^features must be one vector of real numbers for every input, all of one length\.$"),
        (lambda x: x.flatten(1) * 1j, r"^features must be one vector of real numbers for every input"),
        (lambda x: x @ torch.zeros(7, 7), r"^features of inputs of shape \(1, 4, 4\) raised RuntimeError\.$"),
        (lambda x: "many", r"^features of inputs of shape \(1, 4, 4\) raised TypeError"),
        (raising, r"^features of inputs of shape \(1, 4, 4\) raised LookupError\.$"),
        (leaving, r"^features of inputs of shape \(1, 4, 4\) raised SystemExit\.$"),
    ],
)
def test_what_is_no_vector_for_every_input_is_refused(features: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extracted(features, images((1, 4, 4), 5))


def test_blocks_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="all of one length"):
        extracted(lambda x: x.flatten(1)[:, : 3 + int(x[0, 0, 0, 0] > 0.5)], images((1, 4, 4), 20), 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_inputs_that_are_no_numbers_are_refused_and_not_smoothed_over(value: float) -> None:
    batch = images((1, 28, 28), 4)
    batch[2, 0, 13, 13] = value
    with pytest.raises(InputError, match="features must be finite numbers; some are not"):
        extracted(oriented_gradients, batch)


@pytest.mark.parametrize("shape", [(108,), (28, 28), (1, 0, 5), (2, 1, 5, 5)])
def test_oriented_gradients_need_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"'oriented-gradients' needs images of shape \(colours, height, width\)"):
        extracted(oriented_gradients, torch.zeros(2, *shape))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (3, "model.features = 3 must be a function or a module of inputs."),
        (nn.Linear(4, 2), "model.features has parameters that could be trained: call requires_grad_(False) on it."),
        (
            nn.BatchNorm1d(4, affine=False),
            "model.features is in training mode, in which parts keep statistics or draw: call eval() on it.",
        ),
    ],
)
def test_what_could_change_is_refused(features: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        check_features("model.features", features)
    assert str(error.value) == message


def test_a_part_in_training_mode_is_refused() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)).requires_grad_(False).eval()
    module[1].train()
    with pytest.raises(InputError, match="is in training mode"):
        check_features("features", module)


def test_what_is_fixed_is_taken() -> None:
    for features in (
        oriented_gradients,
        nn.Flatten().eval(),
        nn.Linear(4, 2).requires_grad_(False).eval(),
        nn.BatchNorm1d(4).requires_grad_(False).eval(),
    ):
        assert check_features("features", features) is features
