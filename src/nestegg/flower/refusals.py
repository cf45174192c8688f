"""When all clients of a run have refused: a reason to stop that tells nothing of a cohort."""

from __future__ import annotations

from collections.abc import Collection

from nestegg.errors import InputError


class Refusals:
    """The clients that have refused an order since this process began.

    A server that stops when all clients *of a round* refuse tells everybody that those who would have answered were
    not drawn, and rates below 1 are charged for a cohort that nobody knows. So a refusal is never forgotten, and a run
    stops when everybody in it has refused once. That depends on draws of clients for rounds in which they refuse, and
    so add nothing to the sum either way; on no draw of a client that answers; and on nobody's data, for a client whose
    training fails says "failed", which does not count. Where everybody is asked in every round, a run stops in the
    first round that all refuse.

    Args:
        clients: how many are in the run.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._refused: set[int] = set()

    def note(self, client: int) -> None:
        """Note that a client has refused."""
        self._refused.add(client)

    def check(self, withdrawn: Collection[int]) -> None:
        """Refuse to go on when all clients but those that have withdrawn, which are not asked, have refused.

        Raises:
            InputError: they have.
        """
        asked = set(range(self._clients)).difference(withdrawn)
        if asked and asked <= self._refused:
            raise InputError(
                f"all {len(asked)} clients have refused: their own logs say why. The round is paid for and not "
                "released; started again in the same folder, the run goes on with it."
            )
