"""Processor time that features take in one thread: `python -m bench.features`. Images are random."""

from __future__ import annotations

import time

import torch

from nestegg.data.features import extracted, oriented_gradients

SIZES = {"MNIST, 60,000 × 28 × 28": (60_000, 1, 28, 28), "CIFAR-10, 50,000 × 3 × 32 × 32": (50_000, 3, 32, 32)}


def main() -> None:
    """Print the least of three times for each dataset's size, and how long a vector is."""
    torch.set_num_threads(1)
    for what, size in SIZES.items():
        images, times = torch.rand(size), []
        for _ in range(3):
            started = time.process_time()
            made = extracted(oriented_gradients, images)
            times.append(time.process_time() - started)
        print(f"oriented gradients of {what}: {min(times):.1f} s of one core, {made.shape[1]} features")


if __name__ == "__main__":
    main()
