"""A fleet of virtual players.

    async with PlayerFleet(server, clock, random.Random(1)).running(100) as fleet: ...

The same seed gives the same players; they log in if they are already registered.
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
from tally.sim.http_client import ServerRejection
from tally.sim.players.player import PlayerBehaviour, VirtualPlayer
from tally.sim.players.scoreboard_client import ScoreboardClient

ADJECTIVES: Final = (
    "brave", "calm", "daring", "eager", "funny", "gentle", "happy", "jolly", "lucky", "mighty",
    "quick", "sly", "wise",
)  # fmt: skip
ANIMALS: Final = (
    "badger", "crane", "dingo", "emu", "falcon", "gecko", "heron", "ibis", "koala", "lynx",
    "otter", "puffin", "wombat",
)  # fmt: skip


@dataclass(slots=True)
class PlayerFleet:
    """The players and their behaviour."""

    scoreboard: ScoreboardClient
    clock: Clock
    rng: random.Random
    behaviour: PlayerBehaviour = field(default_factory=PlayerBehaviour)
    players: list[VirtualPlayer] = field(default_factory=list)
    # Set when the server rejects a valid request, for example because of a wrong key.
    rejected: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def registered_count(self) -> int:
        return sum(player.account is not None for player in self.players)

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator["PlayerFleet"]:
        """Run `count` players until the block ends."""
        self.players += [self._new_player(number) for number in range(count)]
        tasks = [asyncio.create_task(self._run(player)) for player in self.players]
        try:
            yield self
        finally:
            await cancel_all(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()

    async def _run(self, player: VirtualPlayer) -> None:
        while not self.rejected.is_set():
            try:
                await player.run()
            except ServerRejection as error:
                self.scoreboard.stats.last_error = error.message
                self.rejected.set()
            except (Unavailable, RateLimited):
                # The retries are exhausted; the player returns later.
                await self.clock.sleep(self.behaviour.interval)

    def _new_player(self, number: int) -> VirtualPlayer:
        """A random player. The addresses are from the benchmarking range 198.18.0.0/15."""
        rng = random.Random(self.rng.getrandbits(64))  # noqa: S311  game data, not keys
        username = f"{rng.choice(ADJECTIVES)}_{rng.choice(ANIMALS)}_{rng.randrange(16**6):06x}"
        address = f"198.{18 + number // 65_536 % 2}.{number // 256 % 256}.{number % 256}"
        password = f"{rng.getrandbits(64):016x}"
        return VirtualPlayer(
            username, password, address, self.scoreboard, self.clock, rng, self.behaviour
        )
