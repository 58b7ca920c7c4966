"""Webhooks and their deliveries, as records."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tally.kit.encryption import Encryptor
from tally.settings import Secret

# A replaced secret signs for this long, so that receivers can change over.
OLD_SECRET_MS: Final = 86_400_000
MAX_SECRETS: Final = 3
GROUP_LENGTH: Final = 24


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """An encrypted signing secret; `expires_at` (epoch milliseconds) is set once it is replaced."""

    ciphertext: str
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A registered URL and the kinds of events that it receives. Times are epoch milliseconds.

    `disabled_reason` is None while the webhook is enabled.
    """

    webhook_id: str
    url: str
    kinds: tuple[str, ...]
    description: str | None
    # The current secret first.
    secrets: tuple[StoredSecret, ...]
    created_at: int
    disabled_reason: str | None = None
    version: int = 1

    def signing_secrets(self, encryptor: Encryptor, now: int) -> list[Secret]:
        """Decrypt the secrets that are valid now, or raise DecryptionError."""
        return [
            Secret(encryptor.decrypt(secret.ciphertext, secret_context(self.webhook_id)))
            for secret in self.secrets
            if secret.expires_at is None or secret.expires_at > now
        ]

    def with_new_secret(self, ciphertext: str, now: int) -> "Webhook":
        """Return the webhook with another current secret; the old one stays valid for a day."""
        until = now + OLD_SECRET_MS
        old = [
            replace(secret, expires_at=until if secret.expires_at is None else secret.expires_at)
            for secret in self.secrets
            if secret.expires_at is None or secret.expires_at > now
        ]
        secrets = (StoredSecret(ciphertext), *old)[:MAX_SECRETS]
        return replace(self, secrets=secrets)


class DeliveryState(StrEnum):
    """Whether Tally still tries to deliver an event, or waits for an operator."""

    PENDING = "pending"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedDelivery:
    """An event on its way to one webhook. Times are epoch milliseconds.

    `id` sorts the deliveries of a key by their sequence; its first characters are the group.
    """

    webhook_id: str
    id: str
    message_id: str
    kind: str
    key: str
    body: str
    created_at: int
    attempts: int = 0
    not_before: int = 0
    error: str | None = None

    @property
    def group(self) -> str:
        """Deliveries of a group are sent in order: those of one key of one source."""
        return self.id[:GROUP_LENGTH]


def secret_context(webhook_id: str) -> str:
    return f"webhook:{webhook_id}"


def delivery_id(source: str, key: str, sequence: int, number: int) -> str:
    """Return the id of an event of a change, by its number; it sorts by sequence in its group."""
    group = hashlib.sha256(f"{source}\n{key}".encode()).hexdigest()[:GROUP_LENGTH]
    return f"{group}#{sequence:040}#{number:04}"


def message_id(webhook_id: str, source: str, change_id: str, number: int) -> str:
    """Return the id by which a receiver recognises a repeated message."""
    content = "\n".join((webhook_id, source, change_id, str(number)))
    return f"msg_{hashlib.sha256(content.encode()).hexdigest()[:32]}"


def failure_details(delivery: QueuedDelivery) -> Mapping[str, object]:
    """Return what a log entry says about a delivery: no URL, body or secret."""
    return {
        "webhook": delivery.webhook_id,
        "message": delivery.message_id,
        "attempts": delivery.attempts,
        "error": delivery.error,
    }
