"""The admin routes of webhooks, below `/admin`."""

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.errors import Conflict, Invalid, NotFound
from tally.instance.admin_errors import ADMIN_ERRORS, BODY_ERRORS
from tally.instance.repository.webhook_records import DeliveryState
from tally.instance.webhooks import schemas
from tally.instance.webhooks.service import WebhookAdministration, WebhookChange, webhook_not_found
from tally.kit import ids
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.endpoints import Endpoint
from tally.kit.http import NO_STORE, Json
from tally.kit.operators import OPERATOR_SCHEME

_OPERATOR: Final[dict[str, Any]] = {"security": (OPERATOR_SCHEME,)}
_NOT_FOUND: Final = webhook_not_found(schemas.WEBHOOK_EXAMPLE.webhook_id)
_CHANGED: Final = Conflict("The webhook was changed at the same time", code="webhook_changed")
_REFUSED: Final = Invalid(
    "url must not lead to 10.0.0.1: webhooks are sent to public addresses only",
    code="webhook_address_refused",
    field="url",
)
_WITH_SECRET: Final = schemas.WebhookWithSecret(
    schemas.WEBHOOK_EXAMPLE, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)


@dataclass(frozen=True, slots=True)
class WebhookHandlers:
    """One method per route."""

    service: WebhookAdministration
    cursors: Cursors

    async def list_kinds(self, _: Request) -> ASGIApp:
        kinds = self.service.kinds()
        return Json(
            schemas.EventKinds([schemas.EventKindBody(kind, kinds[kind]) for kind in kinds])
        )

    async def create_webhook(self, request: Request) -> ASGIApp:
        body = await read_json(request, schemas.NewWebhook)
        webhook, secret = await self.service.create(
            body.url, body.kinds, body.description, body.secret
        )
        created = schemas.WebhookWithSecret(schemas.webhook_body(webhook), secret.reveal())
        return Json(created, 201, NO_STORE)

    async def list_webhooks(self, _: Request) -> ASGIApp:
        webhooks = await self.service.all()
        return Json(schemas.WebhookList([schemas.webhook_body(each) for each in webhooks]))

    async def get_webhook(self, request: Request) -> ASGIApp:
        return Json(schemas.webhook_body(await self.service.get(_webhook_id(request))))

    async def update_webhook(self, request: Request) -> ASGIApp:
        body = await read_json(request, schemas.WebhookPatch)
        change = WebhookChange(
            url=body.url,
            kinds=body.kinds,
            description=body.description,
            is_enabled=body.is_enabled,
        )
        return Json(schemas.webhook_body(await self.service.update(_webhook_id(request), change)))

    async def delete_webhook(self, request: Request) -> ASGIApp:
        await self.service.delete(_webhook_id(request))
        return Response(status_code=204)

    async def rotate_webhook_secret(self, request: Request) -> ASGIApp:
        body = await read_json(request, schemas.NewSecret)
        webhook, secret = await self.service.rotate_secret(_webhook_id(request), body.secret)
        rotated = schemas.WebhookWithSecret(schemas.webhook_body(webhook), secret.reveal())
        return Json(rotated, headers=NO_STORE)

    async def list_deliveries(self, request: Request) -> ASGIApp:
        query = read_query(request, schemas.DeliveryQuery)
        webhook_id, state = _webhook_id(request), DeliveryState(query.state)
        purpose = query_fingerprint("webhook.deliveries", webhook=webhook_id, state=query.state)
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        found, next_key = await self.service.page(webhook_id, state, query.limit, start)
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        bodies = [schemas.delivery_body(delivery, state) for delivery in found]
        return Json(schemas.DeliveryPage(bodies, cursor))

    async def replay_deliveries(self, request: Request) -> ASGIApp:
        body = await read_json(request, schemas.ReplayBody)
        return Json(schemas.ReplayResult(await self.service.replay(_webhook_id(request), body.ids)))


def _webhook_id(request: Request) -> str:
    """Return the ID in the path; a longer one than Tally creates might not fit into a key."""
    webhook_id: str = request.path_params["webhook_id"]
    if len(webhook_id) > ids.LENGTH:
        raise webhook_not_found(webhook_id[: ids.LENGTH])
    return webhook_id


def webhook_endpoints(handlers: WebhookHandlers) -> tuple[Endpoint, ...]:
    return (*_registration(handlers), *_one_webhook(handlers), *_deliveries(handlers))


def _registration(handlers: WebhookHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/webhook-kinds",
            handlers.list_kinds,
            "List the kinds of events",
            response=schemas.EventKinds,
            response_example=schemas.EventKinds(
                [schemas.EventKindBody("milestone.minted", "A part was minted.")]
            ),
            errors=ADMIN_ERRORS,
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/webhooks",
            handlers.create_webhook,
            "Register a webhook",
            description="Events from now on are posted to the URL, signed as in the Standard"
            " Webhooks specification. The response contains the secret, which cannot be shown"
            " again.",
            request=schemas.NewWebhook,
            request_example={"url": "https://example.com/tally", "kinds": ["milestone.minted"]},
            response=schemas.WebhookWithSecret,
            response_example=_WITH_SECRET,
            status=201,
            errors=(
                *BODY_ERRORS,
                _REFUSED,
                Conflict("There are 20 webhooks", code="too_many_webhooks", limit=20),
                *ADMIN_ERRORS,
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/webhooks",
            handlers.list_webhooks,
            "List the webhooks",
            response=schemas.WebhookList,
            response_example=schemas.WebhookList([schemas.WEBHOOK_EXAMPLE]),
            errors=ADMIN_ERRORS,
            **_OPERATOR,
        ),
    )


def _one_webhook(handlers: WebhookHandlers) -> tuple[Endpoint, ...]:
    webhook: dict[str, Any] = {
        "response": schemas.WebhookBody,
        "response_example": schemas.WEBHOOK_EXAMPLE,
    }
    return (
        Endpoint(
            "GET",
            "/webhooks/{webhook_id}",
            handlers.get_webhook,
            "Get a webhook",
            errors=(_NOT_FOUND, *ADMIN_ERRORS),
            **webhook,
            **_OPERATOR,
        ),
        Endpoint(
            "PATCH",
            "/webhooks/{webhook_id}",
            handlers.update_webhook,
            "Change, disable or enable a webhook",
            request=schemas.WebhookPatch,
            request_example={"is_enabled": False},
            errors=(*BODY_ERRORS, _REFUSED, _NOT_FOUND, _CHANGED, *ADMIN_ERRORS),
            **webhook,
            **_OPERATOR,
        ),
        Endpoint(
            "DELETE",
            "/webhooks/{webhook_id}",
            handlers.delete_webhook,
            "Delete a webhook and its deliveries",
            status=204,
            errors=(_NOT_FOUND, *ADMIN_ERRORS),
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/webhooks/{webhook_id}/secret",
            handlers.rotate_webhook_secret,
            "Replace the secret of a webhook",
            description="For a day, messages are signed with the old secret too.",
            request=schemas.NewSecret,
            request_example={},
            response=schemas.WebhookWithSecret,
            response_example=_WITH_SECRET,
            errors=(*BODY_ERRORS, _NOT_FOUND, _CHANGED, *ADMIN_ERRORS),
            **_OPERATOR,
        ),
    )


def _deliveries(handlers: WebhookHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/webhooks/{webhook_id}/deliveries",
            handlers.list_deliveries,
            "List the pending or parked deliveries of a webhook",
            query=schemas.DeliveryQuery,
            response=schemas.DeliveryPage,
            response_example=schemas.DeliveryPage([schemas.DELIVERY_EXAMPLE], None),
            errors=(
                Invalid("limit: Expected `int` >= 1", code="invalid_field", field="limit"),
                _NOT_FOUND,
                *ADMIN_ERRORS,
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/webhooks/{webhook_id}/replay",
            handlers.replay_deliveries,
            "Deliver parked events again",
            request=schemas.ReplayBody,
            request_example={},
            response=schemas.ReplayResult,
            response_example=schemas.ReplayResult(12),
            errors=(
                *BODY_ERRORS,
                _NOT_FOUND,
                NotFound(
                    f"Delivery {schemas.DELIVERY_EXAMPLE.id} is not parked",
                    code="delivery_not_found",
                    field="ids",
                ),
                *ADMIN_ERRORS,
            ),
            **_OPERATOR,
        ),
    )
