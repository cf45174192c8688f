"""The licences of what is installed with nestegg, from the metadata of the packages themselves."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_CLASSIFIER = "License :: "


def of_all_extras() -> str:
    """Return the table of what is installed with all extras."""
    return table(distribution(name) for name in closure(["nestegg-fl[all]"]) - {"nestegg-fl"})


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of the distributions that pip would install for these, as far as they are installed here."""
    found: dict[str, set[str]] = {}  # and the extras that were asked for
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found and one.extras <= found[name]:
            continue
        extras = found[name] = found.get(name, set()) | one.extras
        needed = [Requirement(line) for line in distribution(name).requires or []]
        waiting += [need for need in needed if _applies(need, extras)]
    return set(found)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def licence(package: Distribution) -> str:
    """Return what a package says of its licence: an SPDX expression, classifiers, or a name in its own words."""

    def lines(key: str) -> list[str]:
        return package.metadata.get_all(key) or []

    classified = [
        line.removeprefix(_CLASSIFIER).removeprefix("OSI Approved :: ")
        for line in lines("Classifier")
        if line.startswith(_CLASSIFIER) and line != f"{_CLASSIFIER}OSI Approved"
    ]
    words = "".join(lines("License")).strip().splitlines()[:1]  # some packages have the whole text here
    return "".join(lines("License-Expression")) or ", ".join(classified) or "".join(words) or "not stated"


def table(packages: Iterable[Distribution]) -> str:
    """Return a table of packages, their versions and licences, in Markdown."""
    rows = {canonicalize_name(one.name): (one.name, one.version, licence(one)) for one in packages}
    lines = (("package", "version", "licence"), ("---",) * 3, *(rows[name] for name in sorted(rows)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
