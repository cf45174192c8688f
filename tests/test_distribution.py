"""What is uploaded: one version everywhere, a README that reads anywhere, and nothing left behind."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from tools.build import PROJECT, ROOT, absolute, repacked
from tools.licences import licence, table

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = re.compile(r"\]\(([^)\s]+)\)")


def test_one_version_and_one_day() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = re.findall(r"^## (\d\S*) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version, day = changes[0]
    assert version == PROJECT["version"]
    assert f"\nversion: {version}\ndate-released: {day}\n" in cited


def test_the_readme_s_links_are_there_and_become_addresses() -> None:
    source, tag = PROJECT["urls"]["Source"], f"v{PROJECT['version']}"
    links, addresses = LINKS.findall(README), LINKS.findall(absolute(README, source, tag))
    assert len(links) == len(addresses) > 40
    assert all(re.match(r"https?://", address) for address in addresses)
    assert [link for link in links if "://" not in link and not (ROOT / link.partition("#")[0]).exists()] == []
    pictures = {address for address in addresses if address.endswith((".png", ".svg"))}
    assert pictures
    assert all(address.startswith(f"{source}/raw/{tag}/docs/images/") for address in pictures)
    assert absolute(absolute(README, source, tag), source, "other") == absolute(README, source, tag)


def test_pins_hold_for_every_tool_of_a_release() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.split("[<>=]", one)[0] for one in extras["release"]} <= pinned


def test_an_sdist_has_the_same_bytes_whoever_packs_it_and_when(tmp_path: Path) -> None:
    written = []
    for number, names in enumerate((["a/b", "a/c"], ["a/c", "a/b"])):
        sdist = tmp_path / f"{number}.tar.gz"
        with tarfile.open(sdist, "w:gz") as files:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid, member.uname = 3, 1000.5 + number, number, f"user{number}"
                files.addfile(member, io.BytesIO(name.encode()))
        repacked(sdist, 1_700_000_000)
        written.append(sdist.read_bytes())
        with tarfile.open(sdist) as files:
            assert [(one.name, one.mtime, one.uname) for one in files] == [
                ("a/b", 1_700_000_000, ""),
                ("a/c", 1_700_000_000, ""),
            ]
    assert written[0] == written[1]


class Package(Distribution):
    """A package that is nothing but its metadata."""

    def __init__(self, *lines: str) -> None:
        self.text = "\n".join(["Name: A_b", "Version: 1", *lines, ""])

    def read_text(self, filename: str) -> str | None:
        return self.text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise AssertionError("it has no files")  # abstract in Distribution, so it must be here


OLD = ("License: MIT License", "Classifier: License :: OSI Approved", "Classifier: License :: OSI Approved :: MIT")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("License-Expression: MIT-0", *OLD), "MIT-0"),
        (OLD, "MIT"),
        (OLD[:1], "MIT License"),
        (("License: Apache", "        and its whole text"), "Apache"),
        ((), "not stated"),
    ],
)
def test_a_licence_is_what_the_package_says(lines: tuple[str, ...], expected: str) -> None:
    assert licence(Package(*lines)) == expected
    assert table([Package(*lines)]).splitlines()[2:] == [f"| A_b | 1 | {expected} |"]


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Built in a copy of what is under version control, without the kernel, which `make release` compiles and tries."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone")  # but an unpacked source distribution, which has been built already
    tracked = listed.stdout.strip("\0").split("\0")
    for name in tracked:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    building = "import setuptools.build_meta as build; build.build_sdist('.'); build.build_wheel('.')"
    without = {**os.environ, "CC": "false"}
    subprocess.run([sys.executable, "-c", building], cwd=tmp_path, env=without, capture_output=True, check=True)
    [sdist], [wheel] = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as files:
        assert {f"{sdist.name.removesuffix('.tar.gz')}/{name}" for name in tracked} <= {*files.getnames()}
    with zipfile.ZipFile(wheel) as files:
        brought = {*files.namelist()}
    modules = {
        name.removeprefix("src/") for name in tracked if name.startswith("src/") and name.endswith((".py", ".typed"))
    }
    examples = {f"nestegg/{name}" for name in tracked if name.startswith("examples/")}
    assert modules | examples | {"nestegg/CHANGELOG.md"} <= brought
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in brought)
    assert not any("__pycache__" in name for name in brought)
