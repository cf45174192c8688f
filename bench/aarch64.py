"""Compile the kernel for aarch64, run it under emulation, and compare it with this processor's, bit by bit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nestegg.mechanism import BELOW
from nestegg.training import kernel
from nestegg.training.convolutions import CompiledConvolution

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-static", "-Wall")
KEY, STEP, SIZES, SETTINGS = 12345, 2.0**-20, np.array([37, 8, 1, 20]), kernel.Steps(5, 8, 0.2, 0.9)
NETWORKS = [
    kernel.Network([30, 33, 17, 10], False),
    kernel.Network([30, 33, 17, 10], True),
    kernel.Network([64, 32, 1], False),
    kernel.Network([40, 5], False),
]
Results = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]


class Case:
    """A network and clients to train it."""

    def __init__(self, network: kernel.Network) -> None:
        self.network, generator = network, torch.Generator().manual_seed(1)
        inputs, outputs = network.units[0], network.units[-1]
        self.samples = torch.randn(int(SIZES.sum()), inputs + 1 + outputs, generator=generator)
        self.samples[:, inputs] = 1.0
        self.samples[:, inputs + 1 :] = torch.softmax(self.samples[:, inputs + 1 :] * 9.0, dim=1).round()
        self.edges = [0, *accumulate((a + 1) * b for a, b in pairwise(network.units))]
        self.model = torch.randn(self.edges[-1], generator=generator) / 3.0
        self.shifts = torch.randn(len(SIZES), outputs, generator=generator).numpy()
        self.norms = np.array([0.5, np.inf, 2.0, 1.0])
        self.starts = np.cumsum(SIZES) - SIZES

    def here(self, compiled: kernel.Kernel) -> Results:
        """Return orders, updates, and their clipped sum and lengths, by this processor."""
        order = kernel.orders(compiled, KEY, range(len(SIZES)), SIZES, self.starts, SETTINGS.epochs)
        work = kernel.Work(self.samples, order, SIZES, self.shifts)
        updates = kernel.train(compiled, self.model, self.network, work, SETTINGS)
        total = np.zeros(len(self.model))
        lengths = kernel.add_clipped(compiled, updates, self.norms, self.edges, STEP, total)
        return order, updates.numpy(), total, lengths

    def there(self, program: Path) -> Results:
        """Return the same by the emulated processor."""
        units, clients, size = self.network.units, len(SIZES), len(self.model)
        shape = [clients, SETTINGS.epochs, SETTINGS.batch, len(units) - 1, self.network.tanh, len(self.edges) - 1]
        whole = [*shape, *self.samples.shape, size, *units, *range(clients), *SIZES, *self.starts, *self.edges, KEY]
        real = [*self.norms, SETTINGS.rate, SETTINGS.momentum, BELOW, STEP]
        given = np.array(whole, np.int64).tobytes() + np.array(real).tobytes()
        given += self.model.numpy().tobytes() + self.samples.numpy().tobytes() + self.shifts.tobytes()
        out = subprocess.run([EMULATOR, str(program)], input=given, capture_output=True, check=True).stdout
        kinds = [(np.int64, SETTINGS.epochs * int(SIZES.sum())), (np.float32, clients * size)]
        parts, at = [], 0
        for kind, count in [*kinds, (np.float64, size), (np.float64, clients)]:
            parts.append(np.frombuffer(out, kind, count, at))
            at += count * np.dtype(kind).itemsize
        return parts[0], parts[1].reshape(clients, size), parts[2], parts[3]


def convolved(compiled: kernel.Kernel, program: Path, side: int) -> bool:
    """Return whether a convolution and its derivatives are the same by both processors."""
    torch.manual_seed(1)
    part = CompiledConvolution.of(nn.Conv2d(32, 16, side, padding=side // 2), compiled)
    x, dy = (torch.randn(3, channels, 9, 14).to(memory_format=torch.channels_last) for channels in (32, 16))
    y = part(x.requires_grad_())
    here = [y, *torch.autograd.grad(y, [x, *part.parameters()], dy)]
    images = [one.detach().permute(0, 2, 3, 1) for one in (x, dy, here[0], here[1])]
    given = [images[0], *part.parameters(), images[1]]
    facts = np.array([3, 9, 14, 32, 16, side], np.int64).tobytes()
    sent = facts + b"".join(one.detach().contiguous().numpy().tobytes() for one in given)
    out = subprocess.run([EMULATOR, str(program), "convolve"], input=sent, capture_output=True, check=True).stdout
    return out == b"".join(one.contiguous().numpy().tobytes() for one in (*images[2:], *here[2:]))


def main() -> int:
    """Compare, and say what was compared."""
    missing = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    if missing:
        print(f"aarch64 was not tried: {' and '.join(missing)} not found (Debian: gcc-aarch64-linux-gnu, qemu-user).")
        return 0
    compiled = kernel.load()
    if compiled is None or compiled.instruction_set == "baseline":
        print("aarch64 was not tried: there is no kernel with the same rounding on this processor to compare it with.")
        return 0
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kernel"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([COMPILER, *FLAGS, str(source), "-o", str(program), "-lm"], check=True)
        for network in NETWORKS:
            case = Case(network)
            here, there = case.here(compiled), case.there(program)
            both: Iterator[tuple[NDArray[Any], NDArray[Any]]] = zip(here, there, strict=True)
            same = all(np.isfinite(a).all() and a.tobytes() == b.tobytes() for a, b in both)
            failures += not same
            name = "-".join(map(str, network.units)) + (" with tanh" if network.tanh else "")
            verdict = "the same to the bit" if same else "DIFFERENT"
            print(f"{name}: orders, updates and clipped sum by neon and {compiled.instruction_set} are {verdict}.")
        for side in (3, 5):
            same = convolved(compiled, program, side)
            failures += not same
            verdict = "the same to the bit" if same else "DIFFERENT"
            print(f"{side} x {side}: convolution and derivatives by neon and {compiled.instruction_set} are {verdict}.")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
