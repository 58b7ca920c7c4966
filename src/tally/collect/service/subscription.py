"""The webhook subscription at Strava: registers it, shows it and removes it.

The id of the subscription is stored, so that the webhook accepts its events and no others.
"""

from dataclasses import dataclass

from tally.collect.model.records import StravaSubscription
from tally.collect.repository.main import CollectRepository
from tally.collect.service.ports import SubscriptionClient
from tally.collect.service.webhook import WebhookSecrets
from tally.errors import Conflict, NotFound
from tally.kit.clock import Clock, rfc3339
from tally.settings import MASK

CALLBACK_PATH = "/collect/webhooks/strava"


@dataclass(frozen=True, slots=True)
class SubscriptionService:
    """Manages the subscription of this installation."""

    repository: CollectRepository
    strava: SubscriptionClient
    secrets: WebhookSecrets
    clock: Clock

    async def register(self, public_url: str) -> StravaSubscription:
        """Subscribe the callback of the server at `public_url`. Idempotent.

        The server must run, because Strava calls it during the request.
        """
        callback_url = self._callback_url(public_url)
        found = await self.strava.find()
        if found is None:
            subscription_id = await self.strava.create(callback_url, self.secrets.verify_token)
            found = StravaSubscription(subscription_id, callback_url)
        elif found.callback_url != callback_url:
            raise Conflict(
                f"Strava has the subscription {found.subscription_id} for"
                f" {self.describe(found)}; remove it first: tally collect subscribe --remove"
            )
        is_new = found.subscription_id != await self.repository.subscription_id()
        await self.repository.put_subscription(found.subscription_id, rfc3339(self.clock.now()))
        if is_new:
            # No event was accepted until now: a gap ends, and all athletes are synced.
            now = self.clock.seconds()
            await self.repository.put_heartbeat(now, now)
        return found

    async def show(self) -> StravaSubscription | None:
        return await self.strava.find()

    async def stored_id(self) -> int | None:
        return await self.repository.subscription_id()

    async def remove(self) -> StravaSubscription:
        """Delete the subscription at Strava; NotFound if there is none."""
        found = await self.strava.find()
        if found is not None:
            await self.strava.delete(found.subscription_id)
        await self.repository.delete_subscription()
        if found is None:
            raise NotFound("Strava has no subscription of this application")
        return found

    def describe(self, subscription: StravaSubscription) -> str:
        """Return the callback URL without its secret."""
        head, separator, secret = subscription.callback_url.partition(f"{CALLBACK_PATH}/")
        return f"{head}{separator}{MASK}" if secret else subscription.callback_url

    def _callback_url(self, public_url: str) -> str:
        return f"{public_url.rstrip('/')}{CALLBACK_PATH}/{self.secrets.path_secret.reveal()}"
