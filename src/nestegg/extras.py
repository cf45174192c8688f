"""What is not installed with nestegg itself: whoever needs it is told by name, before anything is done."""

from __future__ import annotations

from importlib.util import find_spec

from nestegg.errors import InputError

DISTRIBUTION = "nestegg-fl"
EXTRAS = {
    "train": ("torch", "randomgen", "safetensors"),
    "ledger": ("sqlalchemy",),
    "charts": ("altair", "vl_convert"),
    "tables": ("pyarrow",),
    "hugging-face": ("datasets",),
    "bench": ("psutil",),
    "cluster": ("ray",),
    "flower": ("flwr", "cryptography"),
    "postgresql": ("psycopg",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "studio": ("jinja2", "starlette", "typst", "uvicorn"),
}
RUNS = ("train", "ledger", "charts")  # what a run with a folder takes: it trains, pays and reports


def needs(what: str, *extras: str) -> None:
    """Refuse what cannot be done without an extra that is missing."""
    missing = [extra for extra in extras if not all(map(_installed, EXTRAS[extra]))]
    if missing:
        *others, last = map(repr, missing)
        named = f"extras {', '.join(others)} and {last}" if others else f"extra {last}"
        raise InputError(f"{what} needs the {named}: pip install '{DISTRIBUTION}[{','.join(missing)}]'.")


def installed_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from its sources
        return "0+unknown"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
