"""Where the time of a round goes."""

from __future__ import annotations

from nestegg.bench import profile


def test_a_profile_says_where_the_time_goes() -> None:
    found = profile.profile_round("tiny", None)
    assert found.parts.keys() == profile.PARTS.keys()
    assert 0.0 < found.privacy < 1.0
    assert sum(found.parts.values()) - found.parts["of it shuffling"] <= 1.0
    assert all(share >= 0.01 for share in found.operations.values())  # of two runs, so not quite shares
