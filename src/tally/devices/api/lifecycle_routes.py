"""The routes of claims, with which boards obtain API keys, and of deletions."""

from typing import Annotated, Any, Final

from msgspec import Meta

from tally.devices.api.lifecycle_handlers import LifecycleHandlers
from tally.devices.api.schemas import examples, fields, requests, responses
from tally.errors import (
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from tally.kit.endpoints import Endpoint
from tally.kit.operators import OPERATOR_SCHEME

LIFECYCLE_PATH_TYPES: Final = {
    "deletion_id": Annotated[fields.Uuid, Meta(examples=[examples.DELETION.deletion_id])],
}

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_BODY: Final[tuple[TallyError, ...]] = (
    Invalid("The body is not valid JSON", code="malformed_json"),
    TooLarge("The body must not be longer than 1048576 bytes"),
    UnsupportedMedia("The content type must be application/json"),
)
_BAD_ID: Final = Invalid(
    "hardware_id must be an upper-case MAC address such as AA:BB:CC:DD:EE:FF",
    code="invalid_field",
    field="hardware_id",
)
_CREDENTIALS: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must be: Bearer, a space, the token", code="missing_token"
    ),
    Unauthenticated("Invalid operator token", code="invalid_token"),
    _UNAVAILABLE,
)
_NO_DEVICE: Final = NotFound(
    f"Device {examples.HARDWARE_ID} does not exist", code="device_not_found"
)
_NO_DELETION: Final = NotFound(
    f"Deletion {examples.DELETION.deletion_id} does not exist", code="deletion_not_found"
)
_OPERATOR: Final[dict[str, Any]] = {"security": (OPERATOR_SCHEME,)}


def lifecycle_endpoints(handlers: LifecycleHandlers) -> tuple[Endpoint, ...]:
    return (*_claims(handlers), *_requests(handlers), *_progress(handlers))


def _claims(handlers: LifecycleHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/claims",
            handlers.create_claim,
            "Create a one-time code for a board",
            description="Only this response contains the code.",
            request=requests.NewClaimBody,
            request_example=examples.NEW_CLAIM,
            response=responses.CreatedClaimBody,
            response_example=examples.CREATED_CLAIM,
            status=201,
            errors=(*_CREDENTIALS, *_BODY, _BAD_ID),
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/claim",
            handlers.claim_key,
            "Exchange a one-time code for an API key",
            description="The key is for this board only, and only this response contains it.",
            request=requests.ClaimBody,
            request_example=examples.CLAIM,
            response=responses.CreatedKeyBody,
            response_example=examples.CLAIMED_KEY,
            status=201,
            errors=(
                *_BODY,
                Invalid("code is missing", code="missing_field", field="code"),
                _BAD_ID,
                Forbidden(
                    "The code is unknown, expired, used, or for another board",
                    code="invalid_claim",
                ),
                RateLimited("Too many claims from this address", retry_after=2),
                _UNAVAILABLE,
            ),
        ),
    )


def _requests(handlers: LifecycleHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "DELETE",
            "/devices/{hardware_id}",
            handlers.delete_device,
            "Delete a device with its readings",
            description="Returns at once; a background job deletes readings, charts and device.",
            response=responses.DeviceDeletionBody,
            response_example=examples.DELETION,
            status=202,
            errors=(*_CREDENTIALS, _BAD_ID, _NO_DEVICE),
            **_OPERATOR,
        ),
        Endpoint(
            "DELETE",
            "/devices/{hardware_id}/readings",
            handlers.delete_readings,
            "Delete the readings in a time range",
            description="`from` and `to` are milliseconds since 1970, both inclusive and required."
            " Returns at once; a background job deletes the readings.",
            query=requests.DeletionQuery,
            response=responses.DeviceDeletionBody,
            response_example=examples.DELETION,
            status=202,
            errors=(
                *_CREDENTIALS,
                Invalid("from is missing", code="missing_field", field="from"),
                _BAD_ID,
                _NO_DEVICE,
            ),
            **_OPERATOR,
        ),
    )


def _progress(handlers: LifecycleHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/deletions",
            handlers.list_deletions,
            "List deletions, newest first",
            query=requests.ListQuery,
            response=responses.DeviceDeletionPage,
            response_example=responses.DeviceDeletionPage([examples.DELETION], None),
            errors=(
                *_CREDENTIALS,
                Invalid("limit: Expected `int` >= 1", code="invalid_field", field="limit"),
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/deletions/{deletion_id}",
            handlers.get_deletion,
            "Get the progress of a deletion",
            response=responses.DeviceDeletionBody,
            response_example=examples.DELETION,
            errors=(
                *_CREDENTIALS,
                Invalid(
                    "deletion_id must be a version 4 UUID",
                    code="invalid_field",
                    field="deletion_id",
                ),
                _NO_DELETION,
            ),
            **_OPERATOR,
        ),
    )
