"""Creates one broadcast channel per match on demand, and deletes the unused ones."""

from dataclasses import dataclass, field
from typing import Final

from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.service.ports import PushGateway
from tally.errors import Conflict, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

CLEANUP_INTERVAL_MS: Final = 3_600_000

_log = logs.logger()


@dataclass(slots=True)
class MatchChannels:
    """The broadcast channels of matches.

    A channel that belongs to no match is deleted after two clean-ups in a row have found it.
    """

    matches: ActiveMatchRepository
    apns: PushGateway
    clock: Clock
    is_enabled: bool = True
    _unused: frozenset[str] = frozenset()
    _cleaned_up_at: int = field(default=0)

    async def get_or_create(self, match_id: str) -> str | None:
        """Return the channel of a match; None if it has none and none can be created."""
        match = await self.matches.get(match_id)
        if (
            match is None
            or match.channel_id is not None
            or not (self.is_enabled and self.apns.is_configured)
        ):
            return match.channel_id if match is not None and self.is_enabled else None
        try:
            channel_id = await self.apns.create_channel()
        except (Conflict, Unavailable) as error:
            _log.warning(
                "Channel creation failed; device tokens are used instead",
                action="channel_create_failed",
                match=match_id,
                error=error,
            )
            return None
        if await self.matches.set_channel(match_id, channel_id) is not None:
            return channel_id
        # Another instance set a channel first.
        await self.apns.delete_channel(channel_id)
        match = await self.matches.get(match_id)
        return None if match is None else match.channel_id

    async def delete_unused(self) -> int:
        """Delete the channels of finished matches and those that a crash left behind.

        Does nothing within an hour of the last clean-up. Returns how many were deleted.
        """
        now = self.clock.milliseconds()
        if not self.apns.is_configured or now < self._cleaned_up_at + CLEANUP_INTERVAL_MS:
            return 0
        self._cleaned_up_at = now
        try:
            unused = frozenset(await self.apns.list_channels()) - {
                match.channel_id for match in await self.matches.list_unfinished()
            }
            deleted = [
                await self.apns.delete_channel(channel_id)
                for channel_id in sorted(unused & self._unused)
            ]
        except (Conflict, Unavailable) as error:
            _log.warning("Channel clean-up failed", action="channel_cleanup_failed", error=error)
            return 0
        self._unused = unused
        return sum(deleted)
