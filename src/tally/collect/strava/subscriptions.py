"""Manages the webhook subscription of the application at Strava, which allows one."""

from dataclasses import dataclass

import msgspec
from pyreqwest.client import Client
from pyreqwest.request import RequestBuilder

from tally.collect.model.records import StravaSubscription
from tally.collect.strava.application import ApplicationState, error_summary
from tally.errors import Conflict, Invalid, Unavailable
from tally.kit.fetch import HttpResponse, fetch
from tally.settings import Secret

SERVICE = "Strava"


class _SubscriptionBody(msgspec.Struct):
    id: int
    callback_url: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionGateway:
    """Calls `/push_subscriptions` with the client credentials."""

    client: Client
    application: ApplicationState
    api_url: str
    client_id: str
    client_secret: Secret | None

    async def find(self) -> StravaSubscription | None:
        """Return the subscription of the application, if there is one."""
        request = self.client.get(self._url()).query(self._credentials())
        response = await self._send(request)
        if response.status != 200:
            raise _refused(response, "list subscriptions")
        found = response.decode(list[_SubscriptionBody], SERVICE)
        return StravaSubscription(found[0].id, found[0].callback_url) if found else None

    async def create(self, callback_url: str, verify_token: Secret) -> int:
        """Create the subscription; Strava calls the callback meanwhile. Return its id."""
        form = self._credentials() | {
            "callback_url": callback_url,
            "verify_token": verify_token.reveal(),
        }
        response = await self._send(self.client.post(self._url()).form(form))
        if response.status not in {200, 201}:
            raise _refused(response, "create the subscription")
        return response.decode(_SubscriptionBody, SERVICE).id

    async def delete(self, subscription_id: int) -> None:
        """Delete the subscription; also succeeds if it is deleted already."""
        url = f"{self._url()}/{subscription_id}"
        response = await self._send(self.client.delete(url).query(self._credentials()))
        if response.status not in {200, 204, 404}:
            raise _refused(response, "delete the subscription")

    async def _send(self, request: RequestBuilder) -> HttpResponse:
        response = await fetch(request, SERVICE)
        self.application.observe(response)
        return response

    def _url(self) -> str:
        return f"{self.api_url}/push_subscriptions"

    def _credentials(self) -> dict[str, str]:
        if self.client_secret is None or not self.client_id:
            raise Unavailable(
                "Strava is not configured: set TALLY_COLLECT_STRAVA_CLIENT_ID and"
                " TALLY_COLLECT_STRAVA_CLIENT_SECRET",
                code="strava_not_set_up",
            )
        return {"client_id": self.client_id, "client_secret": self.client_secret.reveal()}


def _refused(response: HttpResponse, action: str) -> Conflict | Invalid | Unavailable:
    """Build the error for a refused request. Strava names the field that is wrong."""
    message = f"Strava refused to {action} with status {response.status}"
    summary = error_summary(response)
    message = f"{message}: {summary}" if summary else message
    return Unavailable(message) if response.status >= 429 else Invalid(message)
