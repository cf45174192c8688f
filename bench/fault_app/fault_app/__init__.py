"""An app whose clients and server fail on demand; what it trains is nothing, so that what it releases is noise."""

from nestegg import Budget, Group, Plan, plan

EPSILONS = (2.0, 5.0, 10.0)
SIZE = 300  # 90,000 weights: their standard deviation is known to 0.3 %


def make_plan(rounds: int) -> Plan:
    """Three clients in three groups, all of them sampled in every round."""
    groups = [Group(f"group{number}", 1, Budget(epsilon)) for number, epsilon in enumerate(EPSILONS)]
    return plan(groups, rounds=rounds, spending_rate=1.0, clip_norm=1.0)
