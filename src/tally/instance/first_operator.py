"""The first start creates the operator `admin` and writes its token to a file.

The file is written first, so that a crash between the two steps loses nothing: the next start uses
the token in the file. An installation that ever had an operator gets none again: `tally operator
add` on the machine recovers access.
"""

import shlex
from pathlib import Path
from typing import Final

from tally.errors import Unavailable
from tally.instance.operators import OperatorAccounts, operator_token_prefix
from tally.kit import keyfile, logs
from tally.kit.operators import Operator, Role
from tally.settings import Settings

FIRST_OPERATOR: Final = "admin"
OPERATOR_FILE: Final = "operator.token"
# A route per backend that an operator can call without parameters.
EXAMPLE_ROUTES: Final = {
    "devices": "/devices/devices",
    "scoreboard": "/scoreboard/api/v1/admin/leaderboard/drift",
    "cricket": "/cricket/admin/fixtures?leagueId=1",
    "collect": "/collect/admin/audit?event=AUTH_LOGIN",
}
_log = logs.logger()


async def ensure_first_operator(operators: OperatorAccounts, settings: Settings) -> Path | None:
    """Create the first operator if there never was one and TALLY_OPERATOR_TOKEN defines none.

    Return the file with the token of `admin`, or None if there is no such file or the token in it
    is not valid.
    """
    path = settings.data_dir / OPERATOR_FILE
    try:
        if settings.operator_token is None and not await operators.is_initialized():
            await _create(operators, path)
        return path if path.exists() and await operators.is_valid(_read(path)) else None
    except Unavailable as error:
        # The instance starts, and reports on /health/ready that it cannot use the store.
        _log.error(
            "Creating the first operator failed; the next start tries again",
            action="operator_failed",
            error=error.__cause__ or error,
        )
        return None


async def _create(operators: OperatorAccounts, path: Path) -> None:
    token = keyfile.read_or_create(path, prefix=operator_token_prefix(FIRST_OPERATOR)).reveal()
    if not await operators.add_first(FIRST_OPERATOR, token):
        if not await operators.is_valid(token):
            _delete(path)  # an instance with another data directory was faster
        return
    await operators.record(Operator("tally", Role.OPERATOR), "operator_add", FIRST_OPERATOR)


def usage(path: Path, settings: Settings, url: str) -> str:
    """Return a command that uses the token in the file."""
    route = next(EXAMPLE_ROUTES[name] for name in EXAMPLE_ROUTES if name in settings.backends)
    return f'curl -H "Authorization: Bearer $(cat {shlex.quote(str(path))})" "{url}{route}"'


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
