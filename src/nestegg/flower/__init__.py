"""nestegg on Flower: one strategy for the server, one mod for the clients, the same plan, mechanism and ledger."""

from nestegg.extras import needs

needs("nestegg.flower", "train", "ledger", "flower")

from nestegg.flower.accountant import GroupAccountant
from nestegg.flower.enrolment import Enrolling
from nestegg.flower.guard import Guard, OwnAccount
from nestegg.flower.mod import PrivacyMod, account_of_node, private_client_app
from nestegg.flower.steps import PreconditionUnmet
from nestegg.flower.strategy import PlannedStrategy
from nestegg.flower.terms import Sharing

__all__ = [
    "Enrolling",
    "GroupAccountant",
    "Guard",
    "OwnAccount",
    "PlannedStrategy",
    "PreconditionUnmet",
    "PrivacyMod",
    "Sharing",
    "account_of_node",
    "private_client_app",
]
