"""Terms are read as if a stranger had written them, and are no terms where noise is not what is charged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from nestegg import Budget, Group, InputError
from nestegg import plan as make_plan
from nestegg.flower.terms import Terms
from nestegg.mechanism import MAX_COHORT
from tests.flower.guards import make_terms
from tests.grid import small_plan


def test_a_plan_whose_noise_is_not_what_it_charges_is_no_terms() -> None:
    plan = small_plan()
    row = plan.groups[1]
    changes: tuple[dict[str, Any], ...] = (
        {"clip_norm": (math.inf,) * 4},
        {"clip_norm": (1e6,) * 4},
        {"sampling_rate": (0.0,) * 4},
        {"sampling_rate": (1.5,) * 4},
    )
    for change in changes:
        groups = (plan.groups[0], replace(row, **change), plan.groups[2])
        with pytest.raises(InputError):
            Terms("monday", replace(plan, groups=groups), "flat", 0, (1.0,) * 4)
    with pytest.raises(InputError, match=r"plan\.clip_norm"):
        Terms("monday", replace(plan, clip_norm=math.inf), "flat", 0, (1.0,) * 4)


@pytest.mark.parametrize("scale", [1e40, 1e-40])
def test_terms_with_a_round_that_has_no_lattice_are_none(scale: float) -> None:
    """Found at the round itself, its charge would be written already."""
    with pytest.raises(InputError, match="the noise of a round"):
        Terms("monday", small_plan(), "flat", 0, (1.0, 1.0, 1.0, scale))


def test_terms_are_for_no_more_clients_than_a_sum_is_exact_for() -> None:
    many = make_plan([Group("all", MAX_COHORT, Budget(5.0))], 2)
    Terms("monday", many, "flat", 0, (1.0, 1.0))
    more = make_plan([Group("all", MAX_COHORT + 1, Budget(5.0))], 2)
    with pytest.raises(InputError, match=r"plan\.clients = 33554433 must be"):
        Terms("monday", more, "flat", 0, (1.0, 1.0))


def test_terms_are_read_as_if_a_stranger_had_written_them() -> None:
    terms = make_terms()
    assert Terms.parse(terms.text).digest == terms.digest
    good = json.loads(terms.text)
    for change in (
        {"clipping": "none"},
        {"colluders": 6},
        {"clip_scale": [1.0]},
        {"clip_scale": [0.0, 1.0, 1.0, 1.0]},
        {"plan": "{}"},
        {"format": "nestegg-terms/1"},
        {"format": "nestegg-terms/3"},
        {"more": 1},
    ):
        with pytest.raises(InputError):
            Terms.parse(json.dumps(good | change))
