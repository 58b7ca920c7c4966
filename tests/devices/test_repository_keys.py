"""The access patterns of the table `api_keys`."""

from dataclasses import replace
from typing import Any

import pytest

from tally.app import open_engine
from tally.devices.model.records import ApiKey
from tally.devices.repository.keys import API_KEYS, ApiKeyRepository
from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.store.api import Get
from tally.store.errors import ConditionFailed
from tally.store.store import Store
from tests.devices.conftest import StoreTarget


@pytest.fixture
def keys(store: Store) -> ApiKeyRepository:
    return ApiKeyRepository(store)


def api_key(minute: int = 0, description: str | None = None) -> ApiKey:
    return ApiKey(
        new_uuid(),
        new_uuid() * 2,
        f"2026-01-01T00:{minute:02}:00Z",
        is_active=True,
        description=description,
    )


async def stored(keys: ApiKeyRepository, key_id: str) -> dict[str, Any] | None:
    found = await keys.store._engine.get(Get(API_KEYS, {"key_id": key_id}, consistent=True))
    return None if found.item is None else dict(found.item)


async def test_a_key_is_found_by_its_hash(keys: ApiKeyRepository) -> None:
    key = api_key(description="greenhouse")
    await keys.create(key)
    await keys.create(api_key())
    assert await keys.by_hash(key.api_key_hash) == key
    assert await keys.by_hash("no such hash") is None


async def test_a_key_has_all_required_attributes(keys: ApiKeyRepository) -> None:
    key = api_key()
    await keys.create(key)
    item = await stored(keys, key.key_id)
    assert item is not None
    assert set(item) == {attribute.name for attribute in API_KEYS.attributes if attribute.required}
    assert (item["gsi1pk"], item["gsi1sk"]) == ("api_keys", key.created_at)


async def test_a_key_id_is_unique(keys: ApiKeyRepository) -> None:
    key = api_key()
    await keys.create(key)
    with pytest.raises(ConditionFailed):
        await keys.create(replace(key, api_key_hash="another"))
    assert await keys.by_hash(key.api_key_hash) == key


async def test_last_used_is_updated_unless_recent(keys: ApiKeyRepository) -> None:
    key = api_key()
    await keys.create(key)
    assert await keys.update_last_used(
        key.key_id, "2026-01-01T00:10:00Z", before="2026-01-01T00:05:00Z"
    )
    assert not await keys.update_last_used(
        key.key_id, "2026-01-01T00:14:00Z", before="2026-01-01T00:09:00Z"
    )
    assert not await keys.update_last_used(
        key.key_id, "2026-01-01T00:01:00Z", before="2025-12-31T23:56:00Z"
    )
    assert (await stored(keys, key.key_id) or {})["last_used_at"] == "2026-01-01T00:10:00Z"
    assert await keys.update_last_used(
        key.key_id, "2026-01-01T00:15:00Z", before="2026-01-01T00:10:00Z"
    )
    assert (await keys.by_hash(key.api_key_hash) or key).last_used_at == "2026-01-01T00:15:00Z"


async def test_use_and_revocation_never_create_a_key(keys: ApiKeyRepository) -> None:
    unknown_id = new_uuid()
    assert not await keys.update_last_used(
        unknown_id, "2026-01-01T00:10:00Z", before="2026-01-01T00:05:00Z"
    )
    assert not await keys.revoke(unknown_id)
    assert await stored(keys, unknown_id) is None


async def test_a_revoked_key_remains_as_inactive(keys: ApiKeyRepository) -> None:
    key = api_key()
    await keys.create(key)
    assert await keys.revoke(key.key_id)
    assert await keys.revoke(key.key_id), "revocation is idempotent"
    assert await keys.by_hash(key.api_key_hash) == replace(key, is_active=False)


async def test_keys_are_listed_newest_first_in_pages(store_target: StoreTarget) -> None:
    async with open_engine(await store_target.new_settings(), SystemClock()) as engine:
        keys = ApiKeyRepository(Store(engine))
        api_keies = [api_key(minute) for minute in (2, 0, 3, 1)]
        for key in api_keies:
            await keys.create(key)
        first, start = await keys.newest_first(3, None)
        rest, end = await keys.newest_first(3, start)
        assert [key.created_at[14:16] for key in first + rest] == ["03", "02", "01", "00"]
        assert end is None
