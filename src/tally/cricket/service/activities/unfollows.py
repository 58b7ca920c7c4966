"""Unfollows a match, so that following one of its teams does not follow it again."""

from tally.cricket.model.records import NEUTRAL, Follow, follow_expiry
from tally.cricket.repository.repositories import Repositories
from tally.kit.clock import Clock


async def unfollow_match(
    repositories: Repositories, clock: Clock, match_id: str, user_id: str
) -> None:
    """Delete a follow, or decline the match if the user follows one of its teams."""
    now = clock.milliseconds()
    fixture = await repositories.fixtures.get(match_id)
    for team_id in () if fixture is None else fixture.team_ids:
        if fixture is not None and await repositories.follows.get_team(team_id, user_id):
            expires_at = max(
                follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600
            )
            declined = Follow(
                match_id=match_id,
                user_id=user_id,
                team_id=NEUTRAL,
                created_at=now,
                expires_at=expires_at,
            )
            await repositories.follows.decline(declined)
            return
    await repositories.follows.unfollow(match_id, user_id, now // 1000)
