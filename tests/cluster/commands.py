"""All commands that take --cluster, and what they write."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

from nestegg.cli.program import app

CONFIG = """format = 2
[federation]
dataset = "digits"
clients = 10
[model]
name = "mlp"
[training]
rounds = 4
local_epochs = 1
reproducible = true
[[privacy.groups]]
name = "all"
epsilon = 20.0
clients = 10
"""


EXPERIMENT = """title = "Two cells"
source = "Not in the paper"
question = "Which is more accurate?"
claim = ""
shows = "accuracy"
seeds = [0]
assumed = []
chosen_clip = false
columns = [
  { name = "fedavg", label = "FedAvg", setting = { method = "fedavg" } },
  { name = "idp-fedavg", label = "IDP-FedAvg", setting = { method = "idp-fedavg" } },
]
[setting]
dataset = "mnist"
clients = 100
rounds = 25
local_epochs = 30
batch_size = 125
learning_rate = 0.001
clip_norm = 1000
spending_rate = 0.9
saving_rate = [0.5, 0.6, 0.7]
transition = [13, 13, 13]
epsilon = [10, 15, 20]
[[rows]]
name = "one"
label = "MNIST"
setting = {}
"""


def nestegg(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


def everything(folder: Path, *cluster: str) -> dict[str, bytes]:
    """What the commands write in a folder, as far as it is the same every time."""
    folder.mkdir()
    with chdir(folder):
        return _written(*cluster)


def _written(*cluster: str) -> dict[str, bytes]:
    Path("small.toml").write_text(CONFIG)
    nestegg("run", "small.toml", "--out", "run", *cluster)
    nestegg("compare", "small.toml", "--methods", "fedavg,optimal", "--seeds", "1", "--out", "comparison", *cluster)
    nestegg("influence", "small.toml", "--public", "digits", "--points", "2", "--draws", "2", *cluster)
    Path("two.toml").write_text(EXPERIMENT)
    nestegg("reproduce", "two.toml", "--scale", "smoke", *cluster)
    nestegg("audit", "run", "--seconds", "3", *cluster)
    files = [Path("run/model.safetensors"), Path("influence.json"), *Path("comparison").glob("*/model.safetensors")]
    cells = [json.loads(path.read_text()) for path in sorted(Path("results/cells").iterdir())]
    audit = json.loads(Path("run/audit.json").read_text())
    return {
        **{str(path): path.read_bytes() for path in files},
        "cells": repr([(cell["hash"], cell["accuracy"]) for cell in cells]).encode(),
        "refuted": repr(audit["refuted"]).encode(),
    }
