"""What would be left of a folder if the power failed now and the disk kept only what was fsynced?

Run the program in `environment(...)`; `image(...)` then builds that folder, at any moment.
Left out: symbolic links, and whatever was in the folder before and was not synced since.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("durable.c")


def compile_shim(folder: Path) -> Path | None:
    """Build the shim in `folder`; None if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    shim = folder.resolve() / "libdurable.so"  # durable.so would be taken for this Python module
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return shim


def environment(shim: Path, root: Path, shadow: Path) -> dict[str, str]:
    """The environment of a program whose syncs below `root` are recorded in `shadow`."""
    root, shadow = root.resolve(), shadow.resolve()
    if shadow.is_relative_to(root):
        raise ValueError(f"the shadow {shadow} lies within {root}, the folder it is to record")
    shadow.mkdir(parents=True, exist_ok=True)
    preload = ":".join(filter(None, [str(shim), os.environ.get("LD_PRELOAD")]))
    return {**os.environ, "LD_PRELOAD": preload, "DURABLE_ROOT": str(root), "DURABLE_SHADOW": str(shadow)}


def image(shadow: Path, root: Path, target: Path) -> None:
    """Build in `target`, a new folder, what is durable of `root`."""
    lock = os.open(shadow, os.O_RDONLY)
    try:
        # Without the lock a running program could change one file between the copies of two.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _restore(shadow, str(root.stat().st_ino), target)
    finally:
        os.close(lock)


def _restore(shadow: Path, directory: str, target: Path) -> None:
    target.mkdir(parents=True)
    names = shadow / f"{directory}.names"
    for line in names.read_bytes().split(b"\n")[:-1] if names.exists() else []:
        kind, identity, name = os.fsdecode(line).split(" ", 2)
        data = shadow / f"{identity}.data"
        if kind == "d":
            _restore(shadow, identity, target / name)
        elif data.exists():
            shutil.copyfile(data, target / name)
        else:
            (target / name).touch()
