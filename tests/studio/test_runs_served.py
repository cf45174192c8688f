"""What the studio gives out of a run: files of a list, and nothing that is private or lies elsewhere."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from nestegg.studio.guard import SANDBOX
from tests.studio.conftest import client_of, refusal, table


def test_files_are_served_by_a_list_in_a_sandbox(made: Path) -> None:
    client = client_of(made)
    for name in ("report.html", "plan.json", "summary.json"):
        answer = client.get("/runs/file", params={"run": "stopped", "name": name})
        assert answer.content == (made / "stopped" / name).read_bytes()
        assert answer.headers["Content-Security-Policy"] == SANDBOX
    for name in ("config.toml", "checkpoint.safetensors", "private/members.json", "../stopped/plan.json", ""):
        assert "must be one of" in refusal(client, "/runs/file", run="stopped", name=name)
    assert "cannot be read" in refusal(client, "/runs/file", run="stopped", name="audit.html")


@pytest.mark.parametrize(
    "path", ["..", "../other", "/etc", "stopped/private", "many/../../other", "link", "a\0b", "out"]
)
def test_no_path_leads_out_or_into_what_is_private(folder: Path, path: str) -> None:
    other = shutil.copytree(folder / "stopped", folder.parent / "other")
    (folder / "link").symlink_to(other)
    (folder / "out").mkdir()
    for name in ("config.toml", "plan.json", "report.html"):
        (folder / "out" / name).symlink_to(other / name)
        shutil.copy(other / name, folder / "stopped" / "private" / name)
    client = client_of(folder)
    runs = table(client)
    assert "link" not in runs
    assert runs["out"]["state"] == "damaged"
    assert "not below the folder" in runs["out"]["said"]
    for address in ("/runs/answer", "/runs/compare", "/runs/file"):
        assert ("no path" if "\0" in path else "not below") in refusal(client, address, run=path, name="report.html")


def test_a_statement_calls_no_server_that_a_configuration_names_and_follows_no_link(folder: Path) -> None:
    run = folder / "stopped"
    text, own = (run / "config.toml").read_text(), run / "private" / "ledger.db"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        url = f"postgresql://me@127.0.0.1:{port}/x"
        (run / "config.toml").write_text(text.replace("[ledger]\n", f'[ledger]\nurl = "{url}"\n'))
        client = client_of(folder)
        for path in ("/statement", "/statement.pdf", "/runs/answer"):
            client.get(path, params={"run": "stopped"})
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert f"is paid by the ledger '{url}'" in refusal(client, "/statement", run="stopped")
        # The one that the studio was started with is asked, and no other.
        assert client_of(folder, str(own)).get("/statement?run=stopped").status_code == 200
    (run / "config.toml").write_text(text)
    assert client.get("/statement?run=stopped").status_code == 200
    own.rename(folder / "elsewhere.db")
    own.symlink_to(folder / "elsewhere.db")
    assert "leads out of the run's folder" in refusal(client, "/statement", run="stopped")
    (run / "model.safetensors").unlink(missing_ok=True)
    (run / "model.safetensors").symlink_to("/etc/hostname")
    assert "not below the folder" in refusal(client, "/statement", run="stopped")


def test_nothing_private_is_in_an_answer(made: Path) -> None:
    client = client_of(made)
    secret = json.loads((made / "stopped/private/fingerprint.json").read_text())["key"]
    (made / "stopped" / "private").chmod(0o000)  # for whoever is not root
    try:
        texts = [json.dumps(table(client))] + [
            client.get(path, params={"run": "stopped", "name": "report.html"}).text
            for path in ("/runs", "/runs/show", "/runs/answer", "/runs/compare", "/runs/file")
        ]
    finally:
        (made / "stopped" / "private").chmod(0o700)
    for text in texts:
        assert secret not in text
        assert "seconds" not in text or "report" in text
        assert "cohort_size" not in text
