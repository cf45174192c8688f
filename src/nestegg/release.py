"""What stands in every file, and in the ledger's entry, of a run that must not be released."""

NOT_FOR_RELEASE = "reproducible run: its noise follows from the seed, so it is not for release"
