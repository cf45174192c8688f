"""An app for long runs: the real strategy, and clients that `bench.flower_nodes` plays."""

from nestegg import Budget, Group, Plan, plan

GROUP, BUDGET = "all", Budget(10.0)


def make_plan(clients: int, rounds: int, rate: float) -> Plan:
    """One group, all of whose clients are sampled with one rate."""
    return plan([Group(GROUP, clients, BUDGET)], rounds=rounds, method="idp-fedavg", spending_rate=rate, clip_norm=1.0)
