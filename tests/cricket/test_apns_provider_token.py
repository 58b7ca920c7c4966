"""Provider tokens are always valid and never change too often."""

from datetime import UTC, datetime, timedelta

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tally.cricket.apns.provider_token import ProviderToken
from tally.kit.clock import ManualClock
from tally.settings import Secret, SettingsError
from tally.sim.apns.provider_tokens import ProviderTokenVerifier, make_provider_key

KEY = make_provider_key()
PRIVATE = load_pem_private_key(KEY.pem.encode(), None)
MINUTE = 60


def provider(clock: ManualClock) -> ProviderToken:
    return ProviderToken(Secret(KEY.pem), KEY.key_id, KEY.team_id, clock)


def verifier(clock: ManualClock) -> ProviderTokenVerifier:
    providers = ProviderTokenVerifier(clock)
    providers.allow(KEY, PRIVATE)  # type: ignore[arg-type]
    return providers


def test_the_token_names_the_key_and_the_team_and_is_signed_with_es256() -> None:
    clock = ManualClock(datetime(2026, 1, 1, 10, 40, tzinfo=UTC))
    scheme, _, token = provider(clock).header().partition(" ")
    assert scheme == "bearer"
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": KEY.key_id}
    claims = jwt.decode(token, PRIVATE.public_key(), ["ES256"], options={"verify_iat": False})  # type: ignore[arg-type]
    assert claims == {
        "iss": KEY.team_id,
        "iat": int(datetime(2026, 1, 1, 10, 30, tzinfo=UTC).timestamp()),
    }


@pytest.mark.parametrize("started", range(0, 60, 13))
async def test_every_token_of_a_day_is_accepted(started: int) -> None:
    """No token is older than an hour, and none is issued within 20 minutes of the last one."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=started, seconds=13))
    token, verifying = provider(clock), verifier(clock)
    for _ in range(24 * 60):
        assert verifying.verify(token.header().encode()) is None
        await clock.advance(MINUTE)


async def test_instances_and_restarts_use_the_same_token() -> None:
    """APNs would take different tokens for too many token updates."""
    clock = ManualClock(datetime(2026, 1, 1, 10, 2, tzinfo=UTC))
    first = provider(clock).header()
    await clock.advance(20 * MINUTE)
    assert provider(clock).header() == first


async def test_an_expired_token_is_renewed_but_not_twice_within_20_minutes() -> None:
    clock = ManualClock(datetime(2026, 1, 1, 10, 2, tzinfo=UTC))
    token = provider(clock)
    first = token.header()
    token.expired(first)
    assert token.header() == first
    await clock.advance(21 * MINUTE)
    token.expired(first)
    second = token.header()
    assert second != first
    token.expired(first)
    token.expired(second)
    assert token.header() == second


async def test_after_too_many_updates_the_previous_token_is_used() -> None:
    """As after a restart when a new token is due: APNs knows the previous one."""
    clock = ManualClock(datetime(2026, 1, 1, 10, 29, tzinfo=UTC))
    earlier, verifying = provider(clock).header(), verifier(clock)
    assert verifying.verify(earlier.encode()) is None
    await clock.advance(2 * MINUTE)
    restarted = provider(clock)
    assert verifying.verify(restarted.header().encode()) == (429, "TooManyProviderTokenUpdates")
    later = restarted.header()
    restarted.too_new(later)
    assert restarted.header() == earlier
    assert verifying.verify(restarted.header().encode()) is None
    restarted.too_new(earlier)
    assert restarted.header() == later


async def test_a_previous_token_is_not_used_beyond_its_hour() -> None:
    clock = ManualClock(datetime(2026, 1, 1, 10, 20, tzinfo=UTC))
    token, verifying = provider(clock), verifier(clock)
    token.too_new(token.header())
    for _ in range(120):
        assert verifying.verify(token.header().encode()) != (403, "ExpiredProviderToken")
        await clock.advance(MINUTE)


def other_curve() -> str:
    key = generate_private_key(SECP384R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "pem",
    ["not a key, but as long as one would be", KEY.pem[:120], other_curve()],
    ids=["text", "half", "curve"],
)
def test_an_invalid_key_is_reported_with_its_setting_and_without_its_content(pem: str) -> None:
    with pytest.raises(SettingsError, match="TALLY_CRICKET_APNS_KEY must be") as caught:
        ProviderToken(Secret(pem), "k", "t", ManualClock())
    assert pem[28:60] not in str(caught.value)
