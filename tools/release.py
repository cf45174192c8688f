"""Build what is uploaded, twice, and try it where there is nothing else: `make release`.

Into dist/ go the source distribution, the manylinux wheel, their hashes, a CycloneDX bill of materials of an
installation with all extras, and the licences of all that is in it. Nothing is uploaded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.build import PROJECT, ROOT, build, said
from tools.licences import table

DIST = ROOT / "dist"
SETS = ("avx512", "avx2", "baseline")
KERNEL = f"""
import ctypes, importlib.util
from nestegg.training.kernel import instruction_sets
library = ctypes.CDLL(importlib.util.find_spec("nestegg.training._kernel").origin)
assert all(hasattr(library, "nestegg_train_" + name) for name in {SETS}), "the kernel lacks an instruction set"
print(*instruction_sets())
"""


class Installation:
    """A new virtual environment that holds a wheel and what it needs; no other program is on its path."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        venv.create(folder, symlinks=True)
        self.folder, self.bin = folder, folder / "bin"
        options = ("--quiet", "--only-binary", ":all:", "--constraint", ROOT / "constraints.txt")
        self.pip("install", *options, f"{wheel}{extras}")

    def pip(self, *arguments: str | Path) -> str:
        """Run pip, which is not in it, and return what it printed."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.bin / "python")
        return said(*pip, *arguments, PATH=str(self.bin))

    def run(self, program: str, *arguments: str | Path, **environment: str) -> str:
        """Run one of its programs in its folder, and return what it printed."""
        return said(self.bin / program, *arguments, folder=self.folder, PATH=str(self.bin), **environment)


def main() -> None:
    """Build, compare, try, list."""
    os.umask(0o022)  # modes are in the hashes
    if said("git", "status", "--porcelain"):
        print("Changes that are not committed are not in what is built.")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with TemporaryDirectory(dir=DIST) as scratch:
        wheel = built_twice(Path(scratch))
        without_extras(Installation(Path(scratch) / "bare", wheel))
        with_all(Installation(Path(scratch) / "all", wheel, "[all]"))
    print(f"All is in {DIST.relative_to(ROOT)}.")


def built_twice(scratch: Path) -> Path:
    """Build in two folders, check that the bytes are the same, keep them, and return the wheel."""
    files, again = (build(scratch / name) for name in ("one", "another"))
    hashes, others = (
        [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}" for one in some] for some in (files, again)
    )
    if hashes != others:
        sys.exit("Two builds of one commit differ:\n" + "\n".join([*hashes, *others]))
    (DIST / "SHA256SUMS").write_text("\n".join([*hashes, ""]))
    kept = [Path(shutil.copy(one, DIST)) for one in files]
    said(sys.executable, "-m", "twine", "check", "--strict", *kept)
    for line, file in zip(hashes, kept, strict=True):
        print(f"{line}, {file.stat().st_size:,} bytes; a second build is the same, twine has nothing to say")
    return kept[-1]


def without_extras(bare: Installation) -> None:
    """Plan an example that the wheel brings, with nothing installed that it does not need."""
    version = bare.run("nestegg", "--version").strip()
    if PROJECT["version"] not in version:
        sys.exit(f"the wheel says that it is {version!r}")
    bare.run("nestegg", "init", "--examples")
    bare.run("nestegg", "plan", "examples/fashion-mnist.toml", "--out", "plan.json")
    print(f"Without a compiler and without extras: {version}; {bare.run('nestegg', 'verify', 'plan.json').strip()}")


def with_all(full: Installation) -> None:
    """Train by every kernel that this processor can run, and write down what is installed."""
    available = full.run("python", "-c", KERNEL).split()
    full.run("nestegg", "init", "--examples")
    for name in available:
        full.run("nestegg", "run", "examples/recipes/digits.toml", "--out", name, NESTEGG_KERNEL=name)
    print(f"The kernel is compiled for {', '.join(SETS)}; a run by each that is here: {', '.join(available)}")
    print(f"pip check: {full.pip('check').strip()}")
    bill = DIST / f"nestegg_fl-{PROJECT['version']}.cdx.json"
    options = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible")
    said("cyclonedx-py", "environment", *options, "--output-file", bill, full.bin / "python")
    [site] = full.folder.glob("lib/python*/site-packages")
    others = [one for one in distributions(path=[str(site)]) if one.name != "nestegg-fl"]
    (DIST / "licences.md").write_text(table(others), encoding="utf-8")
    print(f"{len(others)} dependencies with all extras: {bill.name}, licences.md")


if __name__ == "__main__":
    main()
