"""What a node of a cluster says of itself. This file is sent there as text: a node may have no nestegg."""

from typing import Any


def abilities() -> dict[str, Any]:
    """Return what this process's machine can do: versions, the kernel's instruction sets, and torch's own."""
    import os
    import platform

    import torch

    from nestegg.extras import installed_version
    from nestegg.training import kernel

    asked = os.environ.get(kernel.VARIABLE)  # a node may be told to use less than it has
    sets = [one for one in kernel.instruction_sets() if asked in (None, "", one)]
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__.partition("+")[0],
        "nestegg": installed_version(),
        "instruction_sets": sets,
        "capability": capability,
    }
