"""Tally: four backends that read alike, on one store that has DynamoDB's semantics and runs embedded.

Start at `tally.cli` for the commands, at `tally.app` for how everything is built and wired, at
`tally.store` for the database, and at `tally.kit` for what all backends share. Imports point one
way, down that list, and a test holds them to it.
"""

__version__ = "0.1.0"
