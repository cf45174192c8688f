"""`nestegg init`: a configuration to start from."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.files import make_folder, write_atomically

_DATASETS = {"digits": 50, "mnist": 100, "fashion-mnist": 100, "adult": 100, "cifar10": 100}  # and how many clients


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; made if it is not there.")] = Path(),
    data: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="A file of clients' samples, a row a sample.")
    ] = None,
    client: Annotated[str | None, typer.Option(metavar="COLUMN", help="The file's column of clients' names.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="The file's column to be predicted.")] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Public test data with the same columns.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(metavar="N", help="How many labels there are, where there is no --test that tells.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="One of ours: digits, mnist, fashion-mnist, adult, cifar10.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A recipe, searched: digits; mnist, fashion-mnist, adult, cifar10, or one of these with -strict.",
        ),
    ] = None,
    own: Annotated[bool, typer.Option("--own", help="A dataset and a model of your own, as Python functions.")] = False,
    examples: Annotated[
        bool, typer.Option("--examples", help="All examples of the documentation, in the folder examples.")
    ] = False,
) -> None:
    """Write a configuration to start from: for one of our datasets, a Parquet file, your own code, or a recipe."""
    from nestegg.cli import templates

    if sum((data is not None, dataset is not None, recipe is not None, own, examples)) > 1:
        raise InputError("give one of --data, --dataset, --recipe, --own and --examples.")
    if data is None and (client, target, test, classes) != (None, None, None, None):
        raise InputError("--client, --target, --test and --classes belong to --data.")
    if data is not None:
        texts = {templates.CONFIG: _for_file(folder, data, client, target, test, classes)}
    elif own:
        texts = {templates.CONFIG: templates.for_own(), templates.MODULE: templates.OWN}
    elif examples:
        texts = templates.examples()
    elif recipe is not None:
        texts = {templates.CONFIG: templates.recipe(one_of("--recipe", recipe, templates.recipes()))}
    else:
        name = one_of("--dataset", dataset or "digits", _DATASETS)
        texts = {templates.CONFIG: templates.for_dataset(name, _DATASETS[name])}
    for file in texts:
        if (folder / file).exists():
            raise InputError(f"{folder / file} exists; give another folder, or remove it first.")
    for file, text in texts.items():
        make_folder("folder", (folder / file).parent)
        write_atomically(folder / file, text)
    names, first = (("examples",), "examples/digits.toml") if examples else (texts, templates.CONFIG)
    written, config = " and ".join(str(folder / name) for name in names), shlex.quote(str(folder / first))
    said = f"Written: {written}.{_needed(texts[templates.CONFIG]) if recipe is not None else ''} "
    said += f"Look at the plan: nestegg plan {config}; train: nestegg run {config}"
    Console().print(said, highlight=False, markup=False, soft_wrap=True)


def _needed(recipe: str) -> str:
    """What data a recipe needs, and how to get it."""
    dataset = tomllib.loads(recipe)["federation"]["dataset"]
    how = "comes with nestegg" if dataset == "digits" else f"is brought by: nestegg data get {dataset}"
    return f" Its dataset, {dataset}, {how}."


def _for_file(
    folder: Path, data: Path, client: str | None, target: str | None, test: Path | None, classes: int | None
) -> str:
    """The configuration for a Parquet file, whose columns must be there."""
    from nestegg.cli import templates
    from nestegg.configuration.config import is_parquet

    needs("nestegg init --data", "tables")
    if not is_parquet(data.name):
        raise InputError(f"--data = {str(data)!r} must be a Parquet file, with the end .parquet.")
    if client is None or target is None:
        missing = "--client" if client is None else "--target"
        raise InputError(f"{missing} is missing; {data} has the columns {', '.join(_columns(data))}.")
    kinds = _columns(data)
    for option, column in (("--client", client), ("--target", target)):
        one_of(option, column, kinds)
    if client == target:
        raise InputError(f"--target = {target!r} must be another column than --client.")
    if test is not None and (missing_there := kinds.keys() - _columns(test).keys()):
        raise InputError(f"--test = {str(test)!r} lacks the column {sorted(missing_there)[0]!r} of {data}.")
    classes = _classes(target, kinds[target], test, classes)
    paths = [json.dumps(os.path.relpath(path, folder), ensure_ascii=False) for path in (data, test) if path is not None]
    columns = (json.dumps(client, ensure_ascii=False), json.dumps(target, ensure_ascii=False))
    return templates.for_file(paths[0], columns, paths[1] if test is not None else None, classes)


def _classes(target: str, kind: str, test: Path | None, given: int | None) -> int | None:
    """How many labels there are; 1 of numbers that are to be predicted, None where test data tells."""
    from nestegg.configuration.limits import MOST_CLASSES

    if test is not None and given is not None:
        raise InputError(f"--classes = {given} must be left out: the test data tells how many labels there are.")
    if kind.startswith(("float", "double", "half")):
        known = 1
    elif kind == "bool":
        known = 2
    elif kind.startswith(("int", "uint")):
        if test is None and given is None:
            raise InputError(
                "give --test FILE.parquet, public data, or --classes N, how many labels there are: those of clients "
                "are private, and are not looked at."
            )
        return None if test is not None else whole("--classes", given or 0, 2, MOST_CLASSES)
    else:
        raise InputError(
            f"--target = {target!r} is of type {kind}; it must hold labels (whole numbers from 0, or true "
            "and false) or floating-point numbers to predict."
        )
    if given not in (None, known):
        raise InputError(f"--classes = {given} must be {known}, or left out: the column {target!r} is of type {kind}.")
    return known


def _columns(data: Path) -> dict[str, str]:
    """The columns of a Parquet file, and their types."""
    from nestegg.data.parquet import read_table

    return {field.name: str(field.type) for field in read_table(data).schema}
