"""The machine on which something was measured, in words for tables."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from nestegg.training.kernel import chosen


def machine() -> str:
    """Return what it was measured on, and with."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("nestegg-fl", "torch", "numpy"))
    ours = f"the kernel for {chosen()}" if chosen() else "no kernel"
    return f"{processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}, {ours}"


def processor(file: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, and its family and model where its name does not tell them apart."""
    try:
        lines = (line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        facts = {key.strip(): value.strip() for key, value in lines}
    except OSError:  # other systems have other ways
        facts = {}
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    if "cpu family" not in facts:
        return facts["model name"]
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts.get('model', '?')})"
