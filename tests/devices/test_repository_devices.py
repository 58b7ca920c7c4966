"""The access patterns of the table `devices`."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.app import open_engine
from tally.devices.model.records import Capabilities, Device
from tally.devices.repository.devices import DEVICES, DeviceRepository
from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.store.api import Get
from tally.store.store import Store
from tests.devices.conftest import StoreTarget
from tests.devices.harness import new_hardware_id


@pytest.fixture
def devices(store: Store) -> DeviceRepository:
    return DeviceRepository(store)


def time_at(minute: int) -> str:
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def device(hardware_id: str | None = None, minute: int = 0, **changes: Any) -> Device:
    base = Device(
        hardware_id=hardware_id or new_hardware_id(),
        confirmation_id=new_uuid(),
        capabilities=Capabilities(("bme280",), {"tft_display": True}),
        first_registered_at=time_at(minute),
        last_seen_at=time_at(minute),
        last_boot_id=new_uuid(),
        firmware_version="1.0.16",
    )
    return replace(base, **changes)


async def stored(devices: DeviceRepository, hardware_id: str) -> dict[str, Any]:
    found = await devices.store._engine.get(
        Get(DEVICES, {"hardware_id": hardware_id}, consistent=True)
    )
    assert found.item is not None
    return dict(found.item)


async def test_a_new_device_has_all_required_attributes(
    devices: DeviceRepository,
) -> None:
    reported = device()
    assert await devices.register(reported) == (reported, True)
    assert await devices.get(reported.hardware_id) == reported
    item = await stored(devices, reported.hardware_id)
    required = {attribute.name for attribute in DEVICES.attributes if attribute.required}
    assert set(item) == required
    assert (item["gsi1pk"], item["gsi1sk"]) == ("devices", reported.last_seen_at)
    assert item["capabilities"] == {"sensors": ["bme280"], "features": {"tft_display": True}}


async def test_an_unknown_device_is_none(devices: DeviceRepository) -> None:
    assert await devices.get(new_hardware_id()) is None


async def test_a_second_registration_keeps_confirmation_id_first_time_and_name(
    devices: DeviceRepository,
) -> None:
    first, _ = await devices.register(device())
    await devices.rename(first.hardware_id, "greenhouse")
    reported = device(
        first.hardware_id, 10, capabilities=Capabilities(("ds18b20",)), firmware_version="2.0"
    )
    again, is_new = await devices.register(reported)
    assert not is_new
    assert again == replace(
        reported,
        confirmation_id=first.confirmation_id,
        first_registered_at=first.first_registered_at,
        friendly_name="greenhouse",
    )


async def test_a_registration_by_a_server_with_a_slow_clock_keeps_last_seen(
    devices: DeviceRepository,
) -> None:
    """The other attributes are updated."""
    later, _ = await devices.register(device(minute=30))
    again, is_new = await devices.register(device(later.hardware_id, 20, firmware_version="2.0"))
    assert not is_new
    assert (again.last_seen_at, again.firmware_version) == (time_at(30), "2.0")
    assert (await stored(devices, later.hardware_id))["gsi1sk"] == time_at(30)


async def test_last_seen_is_updated_unless_recent(devices: DeviceRepository) -> None:
    known, _ = await devices.register(device())
    assert not await devices.seen(device(known.hardware_id, 4), before="2025-12-31T23:59:00Z")
    assert (await stored(devices, known.hardware_id))["last_seen_at"] == time_at(0)
    assert await devices.seen(
        device(known.hardware_id, 5, last_boot_id=known.last_boot_id), before=time_at(0)
    )
    item = await stored(devices, known.hardware_id)
    assert item["last_seen_at"] == item["gsi1sk"] == time_at(5)
    assert item["capabilities"]["sensors"] == ["bme280"]


async def test_posting_data_creates_a_minimal_device_that_a_registration_completes(
    devices: DeviceRepository,
) -> None:
    unknown = device(capabilities=Capabilities())
    assert await devices.seen(unknown, before="2025-12-31T23:55:00Z")
    assert await devices.get(unknown.hardware_id) == unknown
    registered, is_new = await devices.register(device(unknown.hardware_id, 1))
    assert is_new
    assert registered.confirmation_id == unknown.confirmation_id
    assert registered.capabilities.sensors == ("bme280",)


async def test_a_name_can_be_set_and_removed(devices: DeviceRepository) -> None:
    known, _ = await devices.register(device())
    assert await devices.rename(known.hardware_id, "Gewächshaus 🌱") == replace(
        known, friendly_name="Gewächshaus 🌱"
    )
    assert await devices.rename(known.hardware_id, None) == known
    assert "friendly_name" not in await stored(devices, known.hardware_id)


async def test_renaming_never_creates_a_device(devices: DeviceRepository) -> None:
    unknown_id = new_hardware_id()
    assert await devices.rename(unknown_id, "ghost") is None
    assert await devices.get(unknown_id) is None


async def test_devices_are_listed_by_activity_in_pages(store_target: StoreTarget) -> None:
    async with open_engine(await store_target.new_settings(), SystemClock()) as engine:
        devices = DeviceRepository(Store(engine))
        registered = [
            (await devices.register(device(minute=minute)))[0] for minute in (3, 1, 4, 0, 2)
        ]
        await devices.seen(replace(registered[3], last_seen_at=time_at(9)), before=time_at(5))
        expected = [time_at(9), *(time_at(minute) for minute in (4, 3, 2, 1))]
        seen: list[Device] = []
        start = None
        while True:
            page, start = await devices.by_activity(2, start)
            assert len(page) <= 2
            seen += page
            if start is None:
                break
        assert [listed.last_seen_at for listed in seen] == expected
        assert len({listed.hardware_id for listed in seen}) == 5


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("register", "seen", "rename")),
        st.integers(0, 59),
        st.sampled_from((1, 5, 20)),
    ),
    max_size=8,
)


@settings(max_examples=25)
@given(STEPS)
async def test_the_sort_key_equals_last_seen_and_never_decreases(
    store: Store, steps: list[tuple[str, int, int]]
) -> None:
    """For any operations of servers with any clocks."""
    devices = DeviceRepository(store)
    hardware_id = new_hardware_id()
    latest = ""
    for action, minute, every in steps:
        reported = device(hardware_id, minute)
        if action == "register":
            await devices.register(reported)
        elif action == "seen":
            await devices.seen(reported, before=time_at(max(0, minute - every)))
        elif await devices.rename(hardware_id, f"name {minute}") is None:
            continue
        item = await stored(devices, hardware_id)
        assert item["gsi1sk"] == item["last_seen_at"] >= latest
        latest = item["last_seen_at"]
