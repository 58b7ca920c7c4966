"""Tally: four live backends on an embedded store with DynamoDB semantics.

`tally.cli` has the commands, `tally.app` builds an instance, `tally.store` is the database, and
`tally.kit` is shared by all backends. Imports point down this list; import contracts enforce it.
"""

__version__ = "0.1.0"
