"""Runs the command line as `python -m tally.cli`."""

from tally.cli import main

main()
