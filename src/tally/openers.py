"""How each backend is opened on what all of them share, with the secrets that are kept for it in the data directory.

A backend has one function here and one line in `OPENERS`; `tally.app` opens those that the settings
ask for.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tally.collect.wiring import Surroundings as CollectSurroundings
from tally.collect.wiring import open_collect
from tally.cricket.wiring import Surroundings as CricketSurroundings
from tally.cricket.wiring import open_cricket
from tally.devices.wiring import Surroundings as DevicesSurroundings
from tally.devices.wiring import open_devices
from tally.kit import keyfile
from tally.kit.backend import Backend
from tally.kit.clock import Clock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.scoreboard.wiring import Surroundings as ScoreboardSurroundings
from tally.scoreboard.wiring import open_scoreboard
from tally.settings import Secret, Settings
from tally.store.store import Store

COLLECT_KEY_FILE: Final = "collect-admin.key"
DEVICES_KEY_FILE: Final = "devices-admin.key"
SCOREBOARD_ADMIN_FILE: Final = "scoreboard-admin.key"
SCOREBOARD_INTERNAL_FILE: Final = "scoreboard-internal.key"
CRICKET_ADMIN_FILE: Final = "cricket-admin.key"
# Of which backend, the setting that would hold it, what it is, and the file in the data directory
# where one that was made lies.
KEY_FILES: Final = (
    ("devices", "devices_admin_token", "operator's token", DEVICES_KEY_FILE),
    ("collect", "collect_admin_token", "operator's token", COLLECT_KEY_FILE),
    ("scoreboard", "scoreboard_admin_key", "operator's key", SCOREBOARD_ADMIN_FILE),
    ("scoreboard", "scoreboard_internal_key", "game servers' key", SCOREBOARD_INTERNAL_FILE),
    ("cricket", "cricket_admin_key", "operator's key", CRICKET_ADMIN_FILE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all backends stand on."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    hub: Hub
    cursors: Cursors
    store: Store

    def made(self, name: str) -> Secret:
        """A secret of that name, kept in the data directory."""
        return keyfile.read_or_make(self.settings.data_dir / name)


@asynccontextmanager
async def _collect(shared: Shared) -> AsyncIterator[Backend]:
    settings = shared.settings
    given = CollectSurroundings(
        settings=settings,
        clock=shared.clock,
        metrics=shared.metrics,
        hub=shared.hub,
        cursors=shared.cursors,
        store=shared.store,
        secret=settings.collect_secret or shared.made("collect.key"),
        admin_token=settings.collect_admin_token or shared.made(COLLECT_KEY_FILE),
        verify_token=settings.collect_strava_verify_token
        or shared.made("collect-strava-verify.key"),
    )
    async with open_collect(given) as collect:
        yield collect


@asynccontextmanager
async def _devices(shared: Shared) -> AsyncIterator[Backend]:
    settings = shared.settings
    yield open_devices(
        DevicesSurroundings(
            settings=settings,
            clock=shared.clock,
            hub=shared.hub,
            cursors=shared.cursors,
            store=shared.store,
            pepper=settings.devices_key_pepper or shared.made("devices-pepper.key"),
            admin_token=settings.devices_admin_token or shared.made(DEVICES_KEY_FILE),
        )
    )


@asynccontextmanager
async def _scoreboard(shared: Shared) -> AsyncIterator[Backend]:
    settings = shared.settings
    given = ScoreboardSurroundings(
        settings=settings,
        clock=shared.clock,
        metrics=shared.metrics,
        hub=shared.hub,
        cursors=shared.cursors,
        action_keys=settings.scoreboard_action_keys or (shared.made("scoreboard-actions.key"),),
        session_keys=settings.scoreboard_session_keys or (shared.made("scoreboard-sessions.key"),),
        internal_key=settings.scoreboard_internal_key or shared.made(SCOREBOARD_INTERNAL_FILE),
        admin_key=settings.scoreboard_admin_key or shared.made(SCOREBOARD_ADMIN_FILE),
    )
    async with open_scoreboard(given) as scoreboard:
        yield scoreboard


@asynccontextmanager
async def _cricket(shared: Shared) -> AsyncIterator[Backend]:
    settings = shared.settings
    given = CricketSurroundings(
        settings=settings,
        clock=shared.clock,
        metrics=shared.metrics,
        hub=shared.hub,
        cursors=shared.cursors,
        store=shared.store,
        admin_key=settings.cricket_admin_key or shared.made(CRICKET_ADMIN_FILE),
    )
    async with open_cricket(given) as cricket:
        yield cricket


OPENERS: Final[Mapping[str, Callable[[Shared], AbstractAsyncContextManager[Backend]]]] = {
    "collect": _collect,
    "cricket": _cricket,
    "devices": _devices,
    "scoreboard": _scoreboard,
}
