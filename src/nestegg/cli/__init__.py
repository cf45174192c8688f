"""The command line: one thin file per command. A user's mistake is one sentence and exit code 2, never a traceback."""

import atexit
import gc
import signal


def main() -> None:
    """Run the program.

    Exit codes: 0 all is well; 1 a plan or a ledger does not hold; 2 the user must change something; 3 a run stopped
    and can go on; 130 it was interrupted.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is begun while modules are imported: just end
    # Python's end looks for cycles among all that libraries have made, which takes as long as importing some of them.
    atexit.register(gc.freeze)
    gc.set_threshold(100_000)  # the same search while modules are imported is a twentieth of a short run
    from nestegg.cli.program import run

    signal.signal(signal.SIGINT, interrupt)
    run()
