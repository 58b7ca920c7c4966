"""Conversion of Strava connections to and from their items."""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.records import StravaConnection
from tally.collect.repository.table import CONNECTION, OWNER, athlete_pk, item_key, user_pk
from tally.store.values import Item


def owner_item(connection: StravaConnection) -> Item:
    return item_key(athlete_pk(connection.athlete_id), OWNER) | {
        "GSI1PK": athlete_pk(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "createdAtUtc": connection.connected_at,
    }


def connection_item(connection: StravaConnection) -> Item:
    item: Item = item_key(user_pk(connection.user_id), CONNECTION) | {
        "GSI1PK": athlete_pk(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "sealedTokens": connection.encrypted_tokens,
        "tokensExpireAt": connection.expires_at,
        "scope": connection.scope,
        "createdAtUtc": connection.connected_at,
        "linkedAtMs": connection.linked_ms,
        "version": connection.version,
    }
    if connection.link_id:
        item["linkId"] = connection.link_id
    return item


def read_connection(item: Mapping[str, Any]) -> StravaConnection:
    return StravaConnection(
        user_id=item["userId"],
        athlete_id=item["athleteId"],
        encrypted_tokens=item["sealedTokens"],
        expires_at=item["tokensExpireAt"],
        scope=item["scope"],
        connected_at=item["createdAtUtc"],
        version=item["version"],
        link_id=item.get("linkId", ""),
        linked_ms=item.get("linkedAtMs", 0),
        needs_relink=item.get("needsRelink", False),
    )
