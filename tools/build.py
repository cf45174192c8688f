"""What is uploaded, built from the last commit: the same commit and the same compiler give the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!#|\w+:)([^)\s]+)\)")  # or a picture


def said(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    """Run a command, and return what it printed; where it fails, print that and end."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env={**_surroundings(), **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _surroundings() -> Mapping[str, str]:
    """This process's environment, with the programs of its virtual environment, and without what Python would heed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}


def build(folder: Path) -> list[Path]:
    """Build a source distribution and a manylinux wheel of the last commit in a new folder."""
    seconds = said("git", "log", "-1", "--format=%ct").strip()
    export(folder / "source")
    python = (sys.executable, "-m")
    files = ("--outdir", folder, folder / "source")
    linker = "cc -shared"  # Python's own may write the place of its libraries into the kernel
    said(*python, "build", "--no-isolation", *files, SOURCE_DATE_EPOCH=seconds, LDSHARED=linker)
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    repacked(sdist, int(seconds))
    said(*python, "auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel, SOURCE_DATE_EPOCH=seconds)
    return [sdist, *(folder / "repaired").iterdir()]


def export(folder: Path) -> None:
    """Write the files of the last commit into a new folder, with a README for a page that is not the repository's."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    readme = folder / "README.md"
    text = absolute(readme.read_text(encoding="utf-8"), PROJECT["urls"]["Source"], f"v{PROJECT['version']}")
    readme.write_text(text, encoding="utf-8")


def absolute(text: str, source: str, tag: str) -> str:
    """Return Markdown whose relative links and pictures are addresses of a tag in a repository.

    >>> absolute("[data](docs/data.md#folders), [here](#here), ![a plan](plan.svg)", "https://a.b", "v1")
    '[data](https://a.b/blob/v1/docs/data.md#folders), [here](#here), ![a plan](https://a.b/raw/v1/plan.svg)'
    """
    return _LINK.sub(
        lambda link: f"{link[1]}[{link[2]}]({source}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})", text
    )


def repacked(sdist: Path, seconds: int) -> None:
    """Write a source distribution anew: in the order of names, of one time, and of nobody (setuptools does not)."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.pax_headers = seconds, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))
