"""What operators do with webhooks: register, change, delete, look at deliveries and replay them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.errors import Conflict, Invalid, NotFound
from tally.instance.repository.consumers import ConsumerRepository
from tally.instance.repository.webhook_deliveries import PAGE, DeliveryRepository
from tally.instance.repository.webhook_records import (
    DeliveryState,
    QueuedDelivery,
    StoredSecret,
    Webhook,
    secret_context,
)
from tally.instance.repository.webhooks import MAX_WEBHOOKS, WebhookRepository
from tally.instance.webhooks.runner import WebhookRunner, consumer_name, delivery_lock
from tally.instance.webhooks.signing import new_signing_secret, parse_signing_secret
from tally.instance.webhooks.targets import parse_target
from tally.kit.clock import Clock
from tally.kit.encryption import Encryptor
from tally.kit.ids import SortableIds
from tally.settings import Secret
from tally.store.values import Key

MAX_REPLAYED_AT_ONCE: Final = 1_000
DISABLED_BY_OPERATOR: Final = "Disabled by an operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChange:
    """New values of a webhook; None leaves a value as it is."""

    url: str | None = None
    kinds: Sequence[str] | None = None
    description: str | None = None
    is_enabled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAdministration:
    """The webhooks of an installation."""

    webhooks: WebhookRepository
    deliveries: DeliveryRepository
    consumers: ConsumerRepository
    runner: WebhookRunner
    encryptor: Encryptor
    clock: Clock
    ids: SortableIds
    allows_private: bool

    def kinds(self) -> Mapping[str, str]:
        """Return the event kinds of this instance's backends, with their descriptions."""
        found = {
            kind: text for source in self.runner.sources for kind, text in source.kinds.items()
        }
        return dict(sorted(found.items()))

    async def create(
        self, url: str, kinds: Sequence[str], description: str | None, secret: str | None
    ) -> tuple[Webhook, Secret]:
        """Register a webhook for the events from now on; return it and its secret."""
        parse_target(url, allows_private=self.allows_private)
        known_kinds = self._check_kinds(kinds)
        signing_secret = new_signing_secret() if secret is None else parse_signing_secret(secret)
        if len(await self.webhooks.all()) >= MAX_WEBHOOKS:
            raise Conflict(
                f"There are {MAX_WEBHOOKS} webhooks, which is the limit",
                code="too_many_webhooks",
                limit=MAX_WEBHOOKS,
            )
        webhook_id = self.ids.next()
        webhook = Webhook(
            webhook_id=webhook_id,
            url=url,
            kinds=known_kinds,
            description=description,
            secrets=(self._encrypt(webhook_id, signing_secret),),
            created_at=self.clock.milliseconds(),
        )
        await self._start_consumers(webhook, ())
        await self.webhooks.create(webhook)
        self.runner.refresh()
        return webhook, signing_secret

    async def all(self) -> Sequence[Webhook]:
        return await self.webhooks.all()

    async def get(self, webhook_id: str) -> Webhook:
        webhook = await self.webhooks.get(webhook_id)
        if webhook is None:
            raise webhook_not_found(webhook_id)
        return webhook

    async def update(self, webhook_id: str, change: WebhookChange) -> Webhook:
        webhook = await self.get(webhook_id)
        if change.url is not None:
            parse_target(change.url, allows_private=self.allows_private)
            webhook = replace(webhook, url=change.url)
        if change.kinds is not None:
            old_kinds = webhook.kinds
            webhook = replace(webhook, kinds=self._check_kinds(change.kinds))
            await self._start_consumers(webhook, old_kinds)
        if change.description is not None:
            webhook = replace(webhook, description=change.description)
        if change.is_enabled is not None:
            reason = webhook.disabled_reason or DISABLED_BY_OPERATOR
            webhook = replace(webhook, disabled_reason=None if change.is_enabled else reason)
        return await self._replace(webhook)

    async def rotate_secret(self, webhook_id: str, secret: str | None) -> tuple[Webhook, Secret]:
        """Set a new secret; for a day, messages are signed with the old one too."""
        signing_secret = new_signing_secret() if secret is None else parse_signing_secret(secret)
        webhook = await self.get(webhook_id)
        stored = self._encrypt(webhook_id, signing_secret).ciphertext
        changed = webhook.with_new_secret(stored, self.clock.milliseconds())
        return await self._replace(changed), signing_secret

    async def delete(self, webhook_id: str) -> None:
        """Delete a webhook, its deliveries and its consumers.

        Another instance may queue events for two more seconds; these expire.
        """
        webhook = await self.get(webhook_id)
        await self.webhooks.delete(webhook_id)
        self.runner.refresh()
        names = [
            consumer_name(webhook_id, each) for each in self.runner.used_sources(webhook.kinds)
        ]
        for name in (*names, delivery_lock(webhook_id)):
            await self.consumers.delete_consumer(name)
        for state in DeliveryState:
            while found := await self.deliveries.ids(webhook_id, state):
                await self.deliveries.delete(webhook_id, state, found)

    async def page(
        self, webhook_id: str, state: DeliveryState, limit: int, start: Key | None
    ) -> tuple[Sequence[QueuedDelivery], Key | None]:
        await self.get(webhook_id)
        return await self.deliveries.page(webhook_id, state, limit, start)

    async def replay(self, webhook_id: str, ids: Sequence[str] | None) -> int:
        """Deliver parked events again, these or the first thousand; return how many."""
        await self.get(webhook_id)
        parked = [delivery async for delivery in self._parked(webhook_id, ids)]
        now = self.clock.milliseconds()
        moved = [
            await self.deliveries.replay(
                replace(delivery, attempts=0, not_before=0, created_at=now, error=None)
            )
            for delivery in parked
        ]
        return sum(moved)

    async def _parked(
        self, webhook_id: str, ids: Sequence[str] | None
    ) -> AsyncIterator[QueuedDelivery]:
        for delivery_id in ids or ():
            delivery = await self.deliveries.parked(webhook_id, delivery_id)
            if delivery is None:
                raise NotFound(
                    f"Delivery {delivery_id} is not parked",
                    code="delivery_not_found",
                    field="ids",
                )
            yield delivery
        start: Key | None = None
        for _ in range(0 if ids is not None else -(-MAX_REPLAYED_AT_ONCE // PAGE)):
            found, start = await self.deliveries.page(webhook_id, DeliveryState.PARKED, PAGE, start)
            for delivery in found:
                yield delivery
            if start is None:
                return

    def _check_kinds(self, kinds: Sequence[str]) -> tuple[str, ...]:
        known = self.kinds()
        unknown = sorted(set(kinds) - known.keys())
        if unknown or not kinds:
            problem = f"unknown kind {unknown[0]}" if unknown else "at least one is required"
            raise Invalid(
                f"kinds: {problem}; this instance has {', '.join(known) or 'none'}",
                code="invalid_field",
                field="kinds",
            )
        return tuple(sorted(set(kinds)))

    async def _start_consumers(self, webhook: Webhook, old_kinds: Sequence[str]) -> None:
        """Let the consumers of sources that the webhook did not use begin with the next change."""
        used = self.runner.used_sources(old_kinds)
        for source in self.runner.used_sources(webhook.kinds):
            if source in used:
                continue
            position = (await source.log.read("", None, 1)).position
            await self.consumers.start_at(consumer_name(webhook.webhook_id, source), position)

    def _encrypt(self, webhook_id: str, secret: Secret) -> StoredSecret:
        return StoredSecret(self.encryptor.encrypt(secret.reveal(), secret_context(webhook_id)))

    async def _replace(self, webhook: Webhook) -> Webhook:
        if not await self.webhooks.replace(webhook):
            raise Conflict(
                "The webhook was changed or deleted at the same time", code="webhook_changed"
            )
        self.runner.refresh()
        return replace(webhook, version=webhook.version + 1)


def webhook_not_found(webhook_id: str) -> NotFound:
    return NotFound(f"Webhook {webhook_id} does not exist", code="webhook_not_found")
