"""The broadcast channels of matches: one for each match that somebody can use it for, and none that nobody uses any more."""

from dataclasses import dataclass, field
from typing import Final

from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.service.ports import PushGateway
from tally.errors import Conflict, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

TIDY_MS: Final = 3_600_000

_log = logs.logger()


@dataclass(slots=True)
class MatchChannels:
    """Makes channels where they are wanted, and deletes those that no match has had for an hour or more."""

    matches: ActiveMatchRepository
    apns: PushGateway
    clock: Clock
    is_used: bool = True
    _unused: frozenset[str] = frozenset()
    _tidied_at: int = field(default=0)

    async def of(self, match_id: str) -> str | None:
        """The channel of a match, made now if there is none; None where there cannot be one."""
        match = await self.matches.get(match_id)
        if (
            match is None
            or match.channel_id is not None
            or not (self.is_used and self.apns.is_configured)
        ):
            return match.channel_id if match is not None and self.is_used else None
        try:
            channel_id = await self.apns.create_channel()
        except (Conflict, Unavailable) as error:
            _log.warning(
                "No channel could be made: tokens will do",
                action="channel_create",
                match=match_id,
                error=error,
            )
            return None
        if await self.matches.set_channel(match_id, channel_id) is not None:
            return channel_id
        await self.apns.delete_channel(channel_id)  # another was faster
        match = await self.matches.get(match_id)
        return None if match is None else match.channel_id

    async def tidy(self) -> int:
        """Delete channels that no match has, and had none an hour ago: of matches that are over, or left behind by a crash."""
        now = self.clock.milliseconds()
        if not self.apns.is_configured or now < self._tidied_at + TIDY_MS:
            return 0
        self._tidied_at = now
        try:
            unused = frozenset(await self.apns.list_channels()) - {
                match.channel_id for match in await self.matches.all_on()
            }
            gone = [
                await self.apns.delete_channel(channel_id)
                for channel_id in sorted(unused & self._unused)
            ]
        except (Conflict, Unavailable) as error:
            _log.warning("Channels were not tidied up", action="channel_tidy", error=error)
            return 0
        self._unused = unused
        return sum(gone)
