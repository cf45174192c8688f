"""What may be released, and the words on what may not."""

NOT_FOR_RELEASE = "reproducible run: its noise follows from the seed, so it is not for release"


def stamp(reproducible: bool) -> dict[str, str]:
    """Return what every file of a run says about itself: a note where its noise follows from a seed, else nothing."""
    return {"note": NOT_FOR_RELEASE} if reproducible else {}
