"""The table `cricket-team-follows`: which users follow which team."""

from dataclasses import dataclass
from typing import Final

from tally.cricket.model.records import TeamFollow
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, Query, UpdateItem, access, param
from tally.store.expressions import Condition, F
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

TEAMS_BY_USER: Final = "userId-index"

CRICKET_TEAM_FOLLOWS = Table(
    "cricket-team-follows",
    partition=S("teamId"),
    sort=S("userId"),
    indexes=(GlobalIndex(TEAMS_BY_USER, partition=S("userId"), sort=S("teamId")),),
    attributes=(
        Attribute("teamId", "S", required=True, about="SportMonks team ID"),
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
    ),
)
_MAPPER: Final = ItemMapper(TeamFollow)
# More than a user may follow, because two requests at a time can exceed the limit.
MAX_LISTED: Final = 200


def team_follow_key(team_id: str, user_id: str) -> Item:
    return {"teamId": team_id, "userId": user_id}


_KEY: Final = team_follow_key(param("teamId"), param("userId"))
_OF_TEAM: Final = F("teamId") == param("teamId")


@dataclass(frozen=True, slots=True)
class TeamFollowPatterns:
    """Follows of teams, by team and by user: a part of `FollowRepository`.

    A transaction adds the follows of a match only while their users follow the team.
    """

    store: Store

    @access(
        "Follow a team",
        UpdateItem(key=_KEY).with_note("upsert"),
        table=CRICKET_TEAM_FOLLOWS,
        by="user",
        trigger="PUT /user/follow/team/:teamId",
        frequency="User action",
    )
    async def follow_team(self, follow: TeamFollow) -> TeamFollow:
        """Upsert a follow; an existing one keeps its creation time."""
        item = await self.store.update(
            CRICKET_TEAM_FOLLOWS,
            team_follow_key(follow.team_id, follow.user_id),
            F("createdAt").set(F("createdAt").if_not_exists(follow.created_at)),
            returns="ALL_NEW",
        )
        return _MAPPER.to_record(item or {})

    @access(
        "Check if user follows team",
        GetItem(key=_KEY),
        table=CRICKET_TEAM_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/:matchId",
        frequency="User action",
    )
    async def get_team(self, team_id: str, user_id: str) -> TeamFollow | None:
        item = await self.store.get(
            CRICKET_TEAM_FOLLOWS, team_follow_key(team_id, user_id), consistent=True
        )
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Unfollow a team",
        DeleteItem(key=_KEY),
        table=CRICKET_TEAM_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/team/:teamId",
        frequency="User action",
    )
    async def unfollow_team(self, team_id: str, user_id: str) -> None:
        await self.store.delete(CRICKET_TEAM_FOLLOWS, team_follow_key(team_id, user_id))

    @access(
        "Get the teams that a user follows",
        Query(where=F("userId") == param("user"), index=TEAMS_BY_USER),
        table=CRICKET_TEAM_FOLLOWS,
        by="user",
        trigger="GET /user/follows/teams",
        frequency="Per request",
        bound=MAX_LISTED,
    )
    async def list_teams(self, user_id: str) -> list[TeamFollow]:
        """Return a user's followed teams by team id."""
        items = self.store.items(CRICKET_TEAM_FOLLOWS, F("userId") == user_id, index=TEAMS_BY_USER)
        return [_MAPPER.to_record(item) async for item in items]

    @access(
        "Get followers of a team",
        Query(where=(_OF_TEAM, _OF_TEAM & (F("userId") > param("last"))), project=("userId",)),
        table=CRICKET_TEAM_FOLLOWS,
        by="system",
        trigger="TeamFollowJob",
        frequency="Per page of followers of a new fixture's team",
    )
    async def list_team_followers(self, team_id: str, after: str, limit: int) -> list[str]:
        """Return the next user ids that follow a team, after the user id `after`."""
        where: Condition = F("teamId") == team_id
        if after:
            where &= F("userId") > after
        page = await self.store.query(
            CRICKET_TEAM_FOLLOWS, where, limit=limit, project=("userId",), consistent=True
        )
        return [item["userId"] for item in page.items]
