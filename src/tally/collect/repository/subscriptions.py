"""The item `STRAVA#SUBSCRIPTION`: the webhook subscription that `tally collect subscribe` made."""

from tally.collect.repository.table import COMMIT_COLLECT, META, item_key
from tally.store.access import DeleteItem, GetItem, PutItem, access
from tally.store.store import Store

_KEY = item_key("STRAVA#SUBSCRIPTION", META)


class Subscriptions:
    """Access patterns of the webhook subscription."""

    __slots__ = ()
    store: Store

    @access(
        "Get webhook subscription",
        GetItem(key=_KEY),
        table=COMMIT_COLLECT,
        by="system",
        trigger="POST /webhooks/strava/{secret}",
        frequency="Every few seconds",
    )
    async def subscription_id(self) -> int | None:
        item = await self.store.get(COMMIT_COLLECT, _KEY, consistent=True)
        return None if item is None else int(item["subscriptionId"])

    @access(
        "Put webhook subscription",
        PutItem(key=_KEY),
        table=COMMIT_COLLECT,
        by="system",
        trigger="tally collect subscribe",
        frequency="Once per installation",
    )
    async def put_subscription(self, subscription_id: int, created_at: str) -> None:
        item = _KEY | {"subscriptionId": subscription_id, "createdAtUtc": created_at}
        await self.store.put(COMMIT_COLLECT, item)

    @access(
        "Delete webhook subscription",
        DeleteItem(key=_KEY),
        table=COMMIT_COLLECT,
        by="system",
        trigger="tally collect subscribe --remove",
        frequency="Rare",
    )
    async def delete_subscription(self) -> None:
        await self.store.delete(COMMIT_COLLECT, _KEY)
