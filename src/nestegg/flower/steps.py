"""Which step of a run failed, in an error as Flower reports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app.exception import AppExitException
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.supercore.exit import ExitCode

from nestegg.errors import BudgetError, InputError, VerificationError


class PreconditionUnmet(AppExitException):
    """What keeps a run from going on, in one sentence: Flower shows it and ends the run as failed."""

    exit_code = ExitCode.SERVERAPP_EXCEPTION  # to others Flower adds advice about replies, which is beside the point

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Let an error that ends a run at the server say at which step it did.

    Our own errors become Flower's, a sentence; others, as those of `evaluate_fn`, get a note.
    """
    try:
        yield
    except BudgetError as error:
        raise PrivacyBudgetExhausted(f"{name}: {error}") from None
    except (InputError, VerificationError) as error:
        raise PreconditionUnmet(f"{name}: {error}") from None
    except Exception as error:
        error.add_note(f"nestegg was at this step: {name}.")
        raise
