"""The items of the table `live-activities`: schema, key and mapper."""

from typing import Final

from tally.cricket.model.records import LiveActivity, activity_key
from tally.cricket.repository.items import ItemMapper
from tally.store.access import param
from tally.store.schema import KEYS_ONLY, Attribute, GlobalIndex, S, Table
from tally.store.values import Item

USER_AND_DEVICE: Final = "userId#deviceId"
BY_USER: Final = "userId-index"

LIVE_ACTIVITIES = Table(
    "live-activities",
    partition=S("matchId"),
    sort=S(USER_AND_DEVICE),
    indexes=(GlobalIndex(BY_USER, partition=S("userId"), sort=S("matchId"), projection=KEYS_ONLY),),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="The match being followed"),
        Attribute(USER_AND_DEVICE, "S", required=True, about="Composite key for user + device"),
        Attribute("userId", "S", required=True),
        Attribute("deviceId", "S", required=True),
        Attribute("teamId", "S", required=True, about='the followed team, or "neutral"'),
        Attribute("alerts", "S", about="the follow's choice; all if absent"),
        Attribute("status", "S", required=True, about="pending, active, or ended"),
        Attribute(
            "updateToken",
            "S",
            about="Current APNs update token for this LA; removed when the end is delivered",
        ),
        Attribute("channelId", "S", about="the broadcast channel it was started with"),
        Attribute(
            "endReason", "S", about="match_end, user_unfollow, user_dismissed, token_invalid"
        ),
        Attribute("starts", "N", required=True, about="number of push-to-start requests"),
        Attribute("startedAt", "N", about="epoch milliseconds of the last push-to-start"),
        Attribute("shown", "S", about="hash of the content of the last push-to-start"),
        Attribute("createdAt", "N", required=True, about="Epoch timestamp, milliseconds"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds: auto-cleanup after match ends"),
    ),
)
ACTIVITY_MAPPER: Final = ItemMapper(LiveActivity, expires_at="ttl")


def live_activity_key(match_id: str, user_id: str, device_id: str) -> Item:
    return {"matchId": match_id, USER_AND_DEVICE: activity_key(user_id, device_id)}


ACTIVITY_KEY: Final = live_activity_key(param("matchId"), param("userId"), param("deviceId"))
