"""Many players at once, each in their own rhythm.

    async with PlayerFleet(server, clock, random.Random(1)).living(100) as fleet: ...

The same chance makes the same people, who sign in again where they signed up before.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tally.errors import RateLimited, Unavailable
from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all
from tally.sim.http_client import RequestRejected
from tally.sim.players.player import PlayerBehaviour, VirtualPlayer
from tally.sim.players.scoreboard_client import ScoreboardClient

FIRST: Final = (
    "brave",
    "calm",
    "daring",
    "eager",
    "funny",
    "gentle",
    "happy",
    "jolly",
    "lucky",
    "mighty",
    "quick",
    "sly",
    "wise",
)
SECOND: Final = (
    "badger",
    "crane",
    "dingo",
    "emu",
    "falcon",
    "gecko",
    "heron",
    "ibis",
    "koala",
    "lynx",
    "otter",
    "puffin",
    "wombat",
)


@dataclass(slots=True)
class PlayerFleet:
    """The players, and how they live."""

    server: ScoreboardClient
    clock: Clock
    rng: random.Random
    behaviour: PlayerBehaviour = field(default_factory=PlayerBehaviour)
    players: list[VirtualPlayer] = field(default_factory=list)
    # Set when the server refuses what it should take: a wrong key, for one.
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def signed_up(self) -> int:
        return sum(player.user is not None for player in self.players)

    @asynccontextmanager
    async def living(self, count: int) -> AsyncIterator["PlayerFleet"]:
        """Let so many players live until the block ends."""
        self.players += [self._new_player(number) for number in range(count)]
        tasks = [asyncio.create_task(self._live(player)) for player in self.players]
        try:
            yield self
        finally:
            await cancel_all(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()

    async def _live(self, player: VirtualPlayer) -> None:
        while not self.refused.is_set():
            try:
                await player.live()
            except RequestRejected as refused:
                self.server.stats.last_error = refused.message
                self.refused.set()
            except (Unavailable, RateLimited):
                # Patience has an end; whoever had enough comes back later.
                await self.clock.sleep(self.behaviour.interval)

    def _new_player(self, number: int) -> VirtualPlayer:
        """Names and addresses follow from the chance; addresses are of a network that is for tests alone."""
        rng = random.Random(self.rng.getrandbits(64))  # noqa: S311  (games, not keys)
        username = f"{rng.choice(FIRST)}_{rng.choice(SECOND)}_{rng.randrange(16**6):06x}"
        address = f"198.{18 + number // 65_536 % 2}.{number // 256 % 256}.{number % 256}"
        password = f"{rng.getrandbits(64):016x}"
        return VirtualPlayer(
            username, password, address, self.server, self.clock, rng, self.behaviour
        )
