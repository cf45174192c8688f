"""A SuperLink and four SuperNodes on this machine, over TLS, ten rounds of digits, three budgets; then the accounts.

Run it with `make flower-demo`, or `python examples/flower/demo.py FOLDER`.
"""

import subprocess
import sys
from pathlib import Path

from nestegg.flower.loopback import Loopback

BUDGETS = (20.0, 20.0, 40.0, 80.0)


def main(folder: Path) -> int:
    """Run the demonstration in a folder; returns an exit code."""
    nodes = [
        {
            "partition-id": number,
            "num-partitions": len(BUDGETS),
            "account": str(folder.absolute() / f"account{number}"),
            "epsilon": epsilon,
            "delta": 1e-5,
        }
        for number, epsilon in enumerate(BUDGETS)
    ]
    with Loopback(folder / "federation", nodes) as federation:
        app = Path(__file__).parent
        code = federation.run(app, {"folder": str(folder.absolute() / "run")}).wait()
    if code or not (folder / "run" / "model.safetensors").exists():
        print(f"The run did not end well; the logs are in {folder / 'federation'}.", file=sys.stderr)
        return code or 1
    nestegg = Path(sys.executable).with_name("nestegg")
    print("\nThe server's ledger, in which clients go by the SHA-256 of their keys:", flush=True)
    subprocess.run([nestegg, "ledger", "show", "--ledger", folder / "run" / "private" / "ledger.db"], check=True)
    for number in (0, len(BUDGETS) - 1):
        print(f"The account that client {number} keeps itself:", flush=True)
        subprocess.run([nestegg, "ledger", "show", "--ledger", folder / f"account{number}" / "ledger.db"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
