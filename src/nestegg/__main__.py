"""`python -m nestegg` is `nestegg`."""

from nestegg.cli import command

command()
