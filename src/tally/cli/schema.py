"""`tally patterns` and `tally schema`: the store's commands on the tables of all backends."""

from pathlib import Path
from typing import Final

import tally
from tally.app import CATALOGUE, open_engine
from tally.cli.startup import load_settings
from tally.kit.clock import SystemClock
from tally.scoreboard.api.routes import SERVICE as SCOREBOARD_SERVICE
from tally.settings import BACKENDS
from tally.store.commands import StoreCommands

# The backends as their log entries name them; the scoreboard's name and log group are specified.
SERVICES: Final = (*(name for name in BACKENDS if name != "scoreboard"), SCOREBOARD_SERVICE)
# Part of the package, so that an installed Tally can compare the tables of a service with it.
LOCK_FILE: Final = Path(tally.__file__).with_name("schema.lock")

_commands = StoreCommands(
    catalogue=lambda: CATALOGUE,
    open_engine=lambda: open_engine(load_settings(), SystemClock()),
    table_prefix=lambda: load_settings().dynamodb_table_prefix,
    services=SERVICES,
    lock_file=LOCK_FILE,
)
patterns = _commands.patterns()
schema = _commands.schema()
