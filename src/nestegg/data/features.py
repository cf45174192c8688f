"""Features: fixed maps from an input to a short vector, on which small models learn, so that less noise reaches them.

No statistic of anybody's data goes in: what becomes of a sample depends on that sample alone, in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestegg.checks import whole
from nestegg.data.adult import NUMBERS
from nestegg.data.datasets import Dataset
from nestegg.errors import InputError

Features = Callable[[Tensor], Tensor]
_DIRECTIONS = 8
_CELLS, _MIRRORED_CELLS = 8, 6  # along the shorter side of an image, at most
_SHARPNESS = 4  # squarings of the cosine: half of a direction is left 17 degrees from it
_BLOCK = 64  # images at a time: what they need stays in the processor's cache
_LEAST, _ROUNDING = 1e-6, 1e-5  # deviation below which a sample is flat: as it is, and beside the sample's mean


def oriented_gradients(images: Tensor, cells: int = _CELLS) -> Tensor:
    """Return where in an image its brightness rises in which direction, and a small copy of the image.

    Central differences, of the colour in which they are largest; their length, shared among eight directions by a
    high power of the cosine; summed in cells that overlap by half, and the square root of it. The small copy is of
    averages. Both are centred and scaled to unit variance within each sample.

    Args:
        images: of shape (images, colours, height, width).
        cells: along the shorter side, at most.

    Example:
        >>> oriented_gradients(torch.rand(5, 1, 28, 28)).shape, oriented_gradients(torch.rand(5, 3, 32, 32)).shape
        (torch.Size([5, 441]), torch.Size([5, 560]))
    """
    if images.ndim != 4 or min(images.shape[1:]) < 1:
        raise InputError(
            f"model.features = 'oriented-gradients' needs images of shape (colours, height, width); inputs have the "
            f"shape {tuple(images.shape[1:])}."
        )
    images = images.float()
    height, width = images.shape[2:]
    step = max(2, math.ceil(min(height, width) / cells))
    images = functional.pad(images, (0, -width % step, 0, -height % step), mode="replicate")
    padded = functional.pad(images, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    squared = across * across + down * down
    if images.shape[1] > 1:
        squared, colour = squared.max(1, keepdim=True)
        across, down = across.gather(1, colour), down.gather(1, colour)
    length = squared.sqrt()
    turns = torch.arange(_DIRECTIONS, dtype=torch.float64) * (2.0 * math.pi / _DIRECTIONS)
    east, south = (part.float()[:, None, None] for part in (turns.cos(), turns.sin()))
    cosines = (across / length.clamp_min(_LEAST) * east + down / length.clamp_min(_LEAST) * south).clamp_min_(0.0)
    for _ in range(_SHARPNESS):
        cosines.square_()
    pooled = functional.avg_pool2d(cosines.mul_(length), 2 * step, step, padding=step // 2).sqrt_()
    copy = functional.avg_pool2d(images, step if images.shape[1] == 1 else 2 * step, ceil_mode=True)
    return torch.cat([_standard(pooled.flatten(1)), _standard(copy.flatten(1))], dim=1)


def _standard(rows: Tensor) -> Tensor:
    """Every row with mean 0 and variance 1; one that is flat but for rounding is zero."""
    if len(rows) == 1:  # alone, a long row is shared among threads, and its sum rounded otherwise than beside others
        return _standard(rows.repeat(2, 1))[:1]
    mean = rows.mean(1, keepdim=True)
    rows = rows - mean
    deviation = rows.square().mean(1, keepdim=True).sqrt()
    is_flat = deviation <= (mean.abs() * _ROUNDING).clamp_min(_LEAST)
    return (rows / deviation.clamp_min(_LEAST)).masked_fill(is_flat, 0.0)


def mirrored_gradients(images: Tensor) -> Tensor:
    """Return the mean of an image's oriented gradients and of its mirror image's, in fewer and larger cells.

    For photographs, which mean the same in a mirror: what tells left from right is left out, so there is less to learn
    in the same noise.

    Example:
        >>> mirrored_gradients(torch.rand(5, 3, 32, 32)).shape
        torch.Size([5, 315])
    """
    both = (oriented_gradients(one, _MIRRORED_CELLS) for one in (images, images.flip(-1)))
    return torch.stack(list(both)).mean(dim=0)


def hat_functions(columns: Sequence[int], *, knots: int = 16) -> Features:
    """Return features of tables: all inputs as they are, and hat functions of some columns.

    A linear model on them may rise and fall with a number, piece by piece, where it could only rise or fall.

    Args:
        columns: whose numbers lie between −√3 and √3, as numbers spread evenly do that have mean 0 and variance 1.
        knots: at which hats have their tops, evenly spaced.

    Example:
        >>> hat_functions([1], knots=3)(torch.tensor([[5.0, 0.0]]))
        tensor([[5., 0., 0., 1., 0.]])
    """
    for column in columns:
        whole("columns", column, 0)
    if not columns:
        raise InputError("columns = [] must name a column at least.")
    whole("knots", knots, 2)
    chosen, tops = list(columns), torch.linspace(-math.sqrt(3.0), math.sqrt(3.0), knots)

    def hats(rows: Tensor) -> Tensor:
        if rows.ndim != 2 or rows.shape[1] <= max(chosen):
            raise InputError(
                f"hat functions of column {max(chosen)} do not fit inputs of shape {tuple(rows.shape[1:])}."
            )
        rows = rows.float()
        distance = (rows[:, chosen, None] - tops).abs() / (tops[1] - tops[0])
        return torch.cat([rows, (1.0 - distance).clamp_min(0.0).flatten(1)], dim=1)

    return hats


FEATURES: dict[str, Features] = {
    "oriented-gradients": oriented_gradients,
    "mirrored-gradients": mirrored_gradients,
    "adult-hats": hat_functions(NUMBERS),
}


def check_features(field: str, features: Any) -> Features:
    """Refuse what is no fixed map: a module that could be trained, or that keeps statistics of what it has seen."""
    if not callable(features):
        raise InputError(f"{field} = {features!r} must be a function or a module of inputs.")
    if isinstance(features, nn.Module):
        if any(parameter.requires_grad for parameter in features.parameters()):
            raise InputError(f"{field} has parameters that could be trained: call requires_grad_(False) on it.")
        if any(part.training for part in features.modules()):
            raise InputError(f"{field} is in training mode, in which parts keep statistics or draw: call eval() on it.")
    return features  # type: ignore[no-any-return]


def extracted(features: Features, inputs: Tensor, rows: int = _BLOCK) -> Tensor:
    """Return the features of inputs, so many rows at a time, in single precision.

    Raises:
        InputError: it is not one vector of finite numbers for every input.
    """
    try:
        with torch.no_grad():
            # A copy: what is written into must not be somebody's data, of which features are made again.
            parts = [torch.as_tensor(features(block.clone())).detach() for block in inputs.split(rows)]
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # code of others may do anything
        kind = type(error).__name__  # its message may hold somebody's data
        raise InputError(f"features of inputs of shape {tuple(inputs.shape[1:])} raised {kind}.") from None
    if any(part.ndim < 2 or part.shape[1:] != parts[0].shape[1:] or part.is_complex() for part in parts):
        raise InputError("features must be one vector of real numbers for every input, all of one length.")
    made = torch.cat(parts).float().flatten(1)
    if len(made) != len(inputs):
        raise InputError(f"features of {len(inputs)} inputs are {len(made)} vectors; there must be as many.")
    if not made.isfinite().all():
        raise InputError("features must be finite numbers; some are not.")
    return made


def featured(data: Dataset, features: Features) -> Dataset:
    """Return a dataset with features in the place of inputs; a function of one's own sees one sample at a time.

    Its bits could otherwise depend on which other samples are beside a client's own.
    """
    rows = _BLOCK if features in FEATURES.values() else 1
    train_x, test_x = (extracted(features, part, rows) for part in (data.train_x, data.test_x))
    return replace(data, train_x=train_x, test_x=test_x)
