"""The command line: one thin file per command. A user's mistake is one sentence and exit code 2, never a traceback."""

import atexit
import gc
import os
import signal
import sys
import threading
from contextlib import suppress


def command() -> None:
    """Be the command `nestegg`: run the program, and end the process.

    It ends at once: to take apart all that libraries have made takes Python as long as importing some of them.
    """
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int) and threading.active_count() == 1:  # Python has nothing to say or to wait for
            atexit._run_exitfuncs()
            with suppress(OSError):  # nobody reads any more: Python deals with it
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code)
        raise


def main() -> None:
    """Run the program.

    Exit codes: 0 all is well; 1 a plan or a ledger does not hold; 2 the user must change something; 3 a run stopped
    and can go on; 130 it was interrupted.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is begun while modules are imported: just end
    gc.set_threshold(100_000)  # looking for cycles while modules are imported is a twentieth of a short run
    # NumPy's and SciPy's threads would wait for work by spinning, on a core that somebody else could use.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from nestegg.cli.program import run

    signal.signal(signal.SIGINT, interrupt)
    run()
