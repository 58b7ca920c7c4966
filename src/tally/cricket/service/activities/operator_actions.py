"""Actions of an operator when the feed is wrong: hold a match, correct a result, restore follows.

While a match is held, nothing is deleted, no Live Activity ends and nobody is alerted; scores are
still updated. A corrected result replaces that of the feed. The pipeline publishes it to followers
like any result, after two polls; for a match that is no longer polled, the stored match changes
immediately.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tally.cricket.model.errors import match_not_found, winner_not_in_match
from tally.cricket.model.records import Fixture, Follow, fixture_follow_expiry
from tally.cricket.model.results import CorrectedResult
from tally.cricket.repository.deleted_follows import DeletedFollowRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.service.queries.feeds import FeedCache
from tally.kit import logs
from tally.kit.clock import Clock

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActions:
    """Changes one match at a time."""

    fixtures: FixtureRepository
    follows: FollowRepository
    deleted_follows: DeletedFollowRepository
    feeds: FeedCache
    clock: Clock

    async def hold(self, match_id: str) -> None:
        await self._update(match_id, held_at=self.clock.milliseconds())
        _log.info("Match held", action="match_held", match=match_id)

    async def release(self, match_id: str) -> None:
        await self._update(match_id, held_at=None)
        _log.info("Match released", action="match_released", match=match_id)

    async def correct_result(self, match_id: str, result: CorrectedResult) -> None:
        """Replace the result of the feed until the correction is removed."""
        fixture = await self._fixture(match_id)
        if result.winner_team_id is not None and result.winner_team_id not in fixture.team_ids:
            raise winner_not_in_match()
        changes: dict[str, object] = {"corrected_result": msgspec.to_builtins(result)}
        if not fixture.is_polled:
            changes |= {
                "status": result.status,
                "note": result.note,
                "winner_team_id": result.winner_team_id,
            }
        await self._update(match_id, **changes)
        cached = None if fixture.is_polled else await self.feeds.get(match_id)
        if cached is not None:
            await self.feeds.put(result.apply(cached.feed))
        _log.info("Result corrected", action="result_corrected", match=match_id)

    async def remove_correction(self, match_id: str) -> None:
        """Use the result of the feed again, from the next poll or sync."""
        await self._update(match_id, corrected_result=None)
        _log.info("Correction removed", action="correction_removed", match=match_id)

    async def restore_follows(self, match_id: str) -> int:
        """Restore the follows that were deleted in the last day; return their number."""
        fixture, now = await self._fixture(match_id), self.clock.milliseconds()
        expires_at = fixture_follow_expiry(fixture, now)
        restored = 0
        async for page in self.deleted_follows.pages(match_id, now // 1000):
            follows = [replace(follow, expires_at=expires_at) for follow in page]
            own = [follow for follow in follows if follow.via_team_id is None]
            restored += sum(await asyncio.gather(*(self.follows.restore(follow) for follow in own)))
            restored += await self._restore_for_teams(
                fixture, [follow for follow in follows if follow.via_team_id is not None]
            )
        await self.deleted_follows.remove_all(match_id)
        _log.info("Follows restored", action="follows_restored", match=match_id, count=restored)
        return restored

    async def _restore_for_teams(self, fixture: Fixture, follows: Sequence[Follow]) -> int:
        """Restore follows whose user still follows their team, or the other one."""
        added = await self.follows.add_for_team(follows)
        rest = [follow for follow in follows if follow not in added]
        others = [
            replace(follow, via_team_id=team_id)
            for follow in rest
            for team_id in fixture.team_ids
            if team_id != follow.via_team_id
        ]
        return len(added) + len(await self.follows.add_for_team(others))

    async def _fixture(self, match_id: str) -> Fixture:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise match_not_found()
        return fixture

    async def _update(self, match_id: str, **changes: object) -> None:
        changes["updated_at"] = self.clock.milliseconds()
        if await self.fixtures.update(match_id, **changes) is None:
            raise match_not_found()
