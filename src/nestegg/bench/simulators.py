"""Other simulators, each in a virtual environment of its own under a cache folder, and the modes to try them in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from nestegg.checks import one_of
from nestegg.errors import InputError

SCRIPTS = Path(__file__).parent / "peers"
_INSTALL_SECONDS = 1800
JAX_MODELS = ("mlp", "softmax", "tanh-cnn")  # what our program in JAX knows


@dataclass(frozen=True)
class Mode:
    """One way to run a simulator: its name, and what its script is told after the work's folder."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Simulator:
    """What does the work.

    Attributes:
        name: for people.
        script: in the folder of peers.
        modes: the best of them counts.
        requirements: what its environment needs, torch aside; nothing if it runs where nestegg does.
        torch: whether it needs torch; it is then installed first, at the version that nestegg runs with.
        models: what it can train; nothing for any.
        loose: times the work's tolerance that its result may differ.
    """

    name: str
    script: str
    modes: tuple[Mode, ...]
    requirements: tuple[str, ...] = ()
    torch: bool = True
    models: tuple[str, ...] = ()
    loose: float = 1.0


def simulators(cores: int, bf16: bool = False) -> list[Simulator]:
    """Ours, first, in single precision and perhaps in bfloat16 too; and its peers, for a machine with so many cores."""
    several = sorted({1, cores})
    ours = [
        Simulator(
            "nestegg" if precision == "fp32" else f"nestegg, {precision}",
            "run_nestegg.py",
            (Mode("auto", ("0", precision, "auto")),),
            models=() if precision == "fp32" else ("cnn", "resnet20"),
            loose=1.0 if precision == "fp32" else 20.0,
        )
        for precision in (["fp32", "bf16"] if bf16 else ["fp32"])
    ]
    threads, processes, actors = (
        tuple(Mode(f"{n} {one if n == 1 else more}", (str(n),)) for n in counts)
        for one, more, counts in (
            ("thread", "threads", several),
            ("process", "processes", several),
            ("actor", "actors", [cores]),
        )
    )
    jax = ("jax==0.10.2", "jaxlib==0.10.2")
    return [
        *ours,
        Simulator("plain PyTorch", "run_plain.py", threads),
        Simulator("pfl", "run_pfl.py", processes, ("pfl==0.6.0",)),
        Simulator("Flower", "run_flower.py", actors, ("flwr[simulation]==1.41.0",)),
        Simulator("JAX, vmap", "run_jax.py", (Mode("all clients at once", ("all",)),), jax, False, JAX_MODELS),
        Simulator("JAX, blocks", "run_jax.py", (Mode("best of six", ("blocks",)),), jax, False, JAX_MODELS),
    ]


def chosen_simulators(peers: Sequence[str], cores: int, bf16: bool) -> list[Simulator]:
    """Return ours, and the peers of these names: plain-pytorch, pfl, flower, jax-vmap, jax-blocks; all; or none."""
    field = simulators(cores, bf16)
    rivals = {_key(one): one for one in field if one.script != field[0].script}
    for name in peers:
        one_of("peers", name, ("all", "none", *rivals))
    return [one for one in field if _key(one) not in rivals or "all" in peers or _key(one) in peers]


def _key(simulator: Simulator) -> str:
    """Return the name by which an option knows a simulator."""
    return simulator.name.lower().replace(",", "").replace(" ", "-")


def multiplication(workers: int, precision: str) -> Simulator:
    """Nothing but matrix products, on as many cores: what the machine can do at most."""
    return Simulator(f"matrix products, {precision}", "run_multiply.py", (Mode("", (str(workers), precision)),))


def default_cache() -> Path:
    """Where environments lie unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nestegg" / "bench"


def python_of(simulator: Simulator, cache: Path) -> Path:
    """The interpreter of a simulator's environment, which is made first if need be.

    Raises:
        InputError: it cannot be installed; the sentence says why.
    """
    if not simulator.requirements:
        return Path(sys.executable)
    wanted = [*(["torch==" + version("torch").split("+")[0]] if simulator.torch else []), *simulator.requirements]
    folder = cache / f"nestegg-{simulator.name.split(',')[0].lower()}"
    python, done, ours = folder / "bin" / "python", folder / "installed.json", folder / "made-by-nestegg"
    if done.exists() and done.read_text() == json.dumps(wanted):
        return python
    if folder.exists() and not ours.exists():
        raise InputError(f"{simulator.name} cannot be installed: {folder} is not ours to overwrite.")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ours.touch()
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"{simulator.name} cannot be installed in {folder}: {error}.") from None
    for requirement in wanted:  # torch first and alone: whatever depends on it then finds it
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
            errors = [line for line in result.stderr.splitlines() if "ERROR" in line] if result.returncode else []
        except (OSError, subprocess.TimeoutExpired) as error:
            result, errors = None, [str(error)]
        if result is None or result.returncode:
            reason = errors[-1].removeprefix("ERROR: ").rstrip(".") if errors else "pip failed"
            raise InputError(f"{simulator.name} cannot be installed: {reason}.")
    done.write_text(json.dumps(wanted))
    return python
