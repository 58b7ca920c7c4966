"""The table `tally-webhooks`: the URLs that receive events, with encrypted secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.instance.repository.webhook_records import StoredSecret, Webhook
from tally.store.access import DeleteItem, GetItem, PutItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

LIST: Final = "webhooks"
MAX_WEBHOOKS: Final = 20
TALLY_WEBHOOKS = Table(
    "tally-webhooks",
    partition=S("list"),
    sort=S("webhookId"),
    attributes=(
        Attribute("list", "S", required=True, about='always "webhooks"'),
        Attribute("webhookId", "S", required=True, about="time-ordered ID"),
        Attribute("url", "S", required=True, about="where events are posted"),
        Attribute("kinds", "L", required=True, about="kinds of events, sorted"),
        Attribute("description", "S", about="set by an operator"),
        Attribute("secrets", "L", required=True, about="encrypted; the current one first"),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute("disabledReason", "S", about="absent while the webhook is enabled"),
        Attribute("version", "N", required=True, about="increases with every change"),
    ),
)


def _key(webhook_id: str) -> Key:
    return {"list": LIST, "webhookId": webhook_id}


_KEY: Final = _key(param("webhookId"))


@dataclass(frozen=True, slots=True)
class WebhookRepository:
    """Webhooks by id."""

    store: Store
    tables: ClassVar = (TALLY_WEBHOOKS,)

    @access(
        "Create webhook",
        PutItem(key=_KEY),
        table=TALLY_WEBHOOKS,
        by="user",
        trigger="POST /admin/webhooks",
        frequency="Rare",
    )
    async def create(self, webhook: Webhook) -> None:
        await self.store.put(TALLY_WEBHOOKS, _item(webhook))

    @access(
        "Replace webhook",
        PutItem(key=_KEY, condition=F("version") == param("version")),
        table=TALLY_WEBHOOKS,
        by="user",
        trigger="PATCH /admin/webhooks/{webhook_id}, POST /admin/webhooks/{webhook_id}/secret",
        frequency="Rare",
    )
    async def replace(self, webhook: Webhook) -> bool:
        """Store a changed webhook, unless somebody else has changed it. Return whether it did."""
        item = _item(webhook) | {"version": webhook.version + 1}
        try:
            await self.store.put(TALLY_WEBHOOKS, item, condition=F("version") == webhook.version)
        except ConditionFailed:
            return False
        return True

    @access(
        "Disable webhook",
        UpdateItem(key=_KEY, condition=F("version") == param("version")),
        table=TALLY_WEBHOOKS,
        trigger="A receiver that answers 410 Gone",
        frequency="Rare",
    )
    async def disable(self, webhook: Webhook, reason: str) -> None:
        """Disable a webhook, unless it was changed or deleted since it was read."""
        try:
            await self.store.update(
                TALLY_WEBHOOKS,
                _key(webhook.webhook_id),
                F("disabledReason").set(reason),
                F("version").set(F("version") + 1),
                condition=F("version") == webhook.version,
            )
        except ConditionFailed:
            return  # the response was to the old URL

    @access(
        "Get webhook",
        GetItem(key=_KEY),
        table=TALLY_WEBHOOKS,
        by="user",
        trigger="Admin routes of a webhook",
        frequency="Rare",
    )
    async def get(self, webhook_id: str) -> Webhook | None:
        item = await self.store.get(TALLY_WEBHOOKS, _key(webhook_id), consistent=True)
        return None if item is None else _webhook(item)

    @access(
        "List webhooks",
        Query(where=F("list") == LIST),
        table=TALLY_WEBHOOKS,
        by="both",
        trigger="GET /admin/webhooks, delivery of webhooks",
        frequency="Every 2 s per instance",
        bound=2 * MAX_WEBHOOKS,
    )
    async def all(self) -> list[Webhook]:
        """Return all webhooks, oldest first."""
        where = F("list") == LIST
        items = self.store.items(TALLY_WEBHOOKS, where, consistent=True, overflow="stop")
        return [_webhook(item) async for item in items]

    @access(
        "Delete webhook",
        DeleteItem(key=_KEY),
        table=TALLY_WEBHOOKS,
        by="user",
        trigger="DELETE /admin/webhooks/{webhook_id}",
        frequency="Rare",
    )
    async def delete(self, webhook_id: str) -> None:
        await self.store.delete(TALLY_WEBHOOKS, _key(webhook_id))


def _item(webhook: Webhook) -> Item:
    optional = {
        "description": webhook.description,
        "disabledReason": webhook.disabled_reason,
    }
    return {
        **_key(webhook.webhook_id),
        "url": webhook.url,
        "kinds": list(webhook.kinds),
        "secrets": [_secret_item(secret) for secret in webhook.secrets],
        "createdAt": webhook.created_at,
        "version": webhook.version,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _secret_item(secret: StoredSecret) -> Item:
    item: Item = {"ciphertext": secret.ciphertext}
    return item if secret.expires_at is None else item | {"expiresAt": secret.expires_at}


def _webhook(item: Mapping[str, Any]) -> Webhook:
    return Webhook(
        webhook_id=item["webhookId"],
        url=item["url"],
        kinds=tuple(item["kinds"]),
        description=item.get("description"),
        secrets=tuple(
            StoredSecret(
                secret["ciphertext"],
                int(secret["expiresAt"]) if "expiresAt" in secret else None,
            )
            for secret in item["secrets"]
        ),
        created_at=int(item["createdAt"]),
        disabled_reason=item.get("disabledReason"),
        version=int(item["version"]),
    )
