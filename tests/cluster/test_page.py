"""docs/scale.md: from one laptop to a cluster, as it is written there, on loopback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of
from tests.ray_nodes import RayNodes


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    commands = [line for block in blocks_of("scale.md") if block.kind == "sh" for line in block.text.splitlines()]
    assert len(commands) == 3
    with RayNodes(0, 1) as nodes:
        for line in commands:
            program, *arguments = shlex.split(line.replace("HEAD:6379", nodes.address))
            assert program == "nestegg"
            code, said = nodes.run("-m", "nestegg", *arguments, cwd=tmp_path)
            assert code == 0, said
    models = [(tmp_path / day / "model.safetensors").read_bytes() for day in ("monday", "tuesday")]
    assert models[0] == models[1]
