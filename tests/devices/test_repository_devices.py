"""The table `devices`: registered once, seen now and then, named, and listed by activity."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.devices.model.records import Capabilities, Device
from tally.devices.repository.devices import DEVICES, DeviceRepository
from tally.kit.ids import new_uuid
from tally.store.api import Get
from tally.store.store import Store
from tests.devices.conftest import StoreTarget, open_engine
from tests.devices.harness import new_hardware_id


@pytest.fixture
def devices(store: Store) -> DeviceRepository:
    return DeviceRepository(store)


def moment(minute: int) -> str:
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def device(hardware_id: str | None = None, minute: int = 0, **changes: Any) -> Device:
    made = Device(
        hardware_id=hardware_id or new_hardware_id(),
        confirmation_id=new_uuid(),
        capabilities=Capabilities(("bme280",), {"tft_display": True}),
        first_registered_at=moment(minute),
        last_seen_at=moment(minute),
        last_boot_id=new_uuid(),
        firmware_version="1.0.16",
    )
    return replace(made, **changes)


async def stored(devices: DeviceRepository, hardware_id: str) -> dict[str, Any]:
    found = await devices.store.engine.get(
        Get(DEVICES, {"hardware_id": hardware_id}, consistent=True)
    )
    assert found.item is not None
    return dict(found.item)


async def test_a_new_device_is_stored_with_all_the_attributes_of_the_schema(
    devices: DeviceRepository,
) -> None:
    asked = device()
    assert await devices.register(asked) == asked
    assert await devices.get(asked.hardware_id) == asked
    item = await stored(devices, asked.hardware_id)
    required = {attribute.name for attribute in DEVICES.attributes if attribute.required}
    assert set(item) == required
    assert (item["gsi1pk"], item["gsi1sk"]) == ("devices", asked.last_seen_at)
    assert item["capabilities"] == {"sensors": ["bme280"], "features": {"tft_display": True}}


async def test_a_device_that_was_never_heard_of_is_none(devices: DeviceRepository) -> None:
    assert await devices.get(new_hardware_id()) is None


async def test_a_second_registration_keeps_the_confirmation_id_the_first_moment_and_the_name(
    devices: DeviceRepository,
) -> None:
    first = await devices.register(device())
    await devices.rename(first.hardware_id, "greenhouse")
    asked = device(
        first.hardware_id, 10, capabilities=Capabilities(("ds18b20",)), firmware_version="2.0"
    )
    again = await devices.register(asked)
    assert again == replace(
        asked,
        confirmation_id=first.confirmation_id,
        first_registered_at=first.first_registered_at,
        friendly_name="greenhouse",
    )


async def test_a_registration_by_a_server_whose_clock_is_behind_does_not_take_time_back(
    devices: DeviceRepository,
) -> None:
    """What the board says of itself is taken all the same."""
    later = await devices.register(device(minute=30))
    again = await devices.register(device(later.hardware_id, 20, firmware_version="2.0"))
    assert (again.last_seen_at, again.firmware_version) == (moment(30), "2.0")
    assert (await stored(devices, later.hardware_id))["gsi1sk"] == moment(30)


async def test_being_seen_is_noted_unless_it_was_noted_lately(devices: DeviceRepository) -> None:
    known = await devices.register(device())
    assert not await devices.seen(device(known.hardware_id, 4), before="2025-12-31T23:59:00Z")
    assert (await stored(devices, known.hardware_id))["last_seen_at"] == moment(0)
    assert await devices.seen(
        device(known.hardware_id, 5, last_boot_id=known.last_boot_id), before=moment(0)
    )
    item = await stored(devices, known.hardware_id)
    assert item["last_seen_at"] == item["gsi1sk"] == moment(5)
    assert item["capabilities"]["sensors"] == ["bme280"]


async def test_a_device_that_only_sends_gets_a_minimal_record_which_a_registration_completes(
    devices: DeviceRepository,
) -> None:
    unknown = device(capabilities=Capabilities())
    assert await devices.seen(unknown, before="2025-12-31T23:55:00Z")
    assert await devices.get(unknown.hardware_id) == unknown
    registered = await devices.register(device(unknown.hardware_id, 1))
    assert registered.confirmation_id == unknown.confirmation_id
    assert registered.capabilities.sensors == ("bme280",)


async def test_a_name_is_given_and_taken_away(devices: DeviceRepository) -> None:
    known = await devices.register(device())
    assert await devices.rename(known.hardware_id, "Gewächshaus 🌱") == replace(
        known, friendly_name="Gewächshaus 🌱"
    )
    assert await devices.rename(known.hardware_id, None) == known
    assert "friendly_name" not in await stored(devices, known.hardware_id)


async def test_naming_never_makes_a_device(devices: DeviceRepository) -> None:
    nobody = new_hardware_id()
    assert await devices.rename(nobody, "ghost") is None
    assert await devices.get(nobody) is None


async def test_devices_are_listed_by_activity_page_by_page(store_target: StoreTarget) -> None:
    async with open_engine(await store_target.new_settings()) as engine:
        devices = DeviceRepository(Store(engine))
        made = [await devices.register(device(minute=minute)) for minute in (3, 1, 4, 0, 2)]
        await devices.seen(replace(made[3], last_seen_at=moment(9)), before=moment(5))
        expected = [moment(9), *(moment(minute) for minute in (4, 3, 2, 1))]
        seen: list[Device] = []
        start = None
        while True:
            page, start = await devices.by_activity(2, start)
            assert len(page) <= 2
            seen += page
            if start is None:
                break
        assert [each.last_seen_at for each in seen] == expected
        assert len({each.hardware_id for each in seen}) == 5


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
async def test_the_sort_key_always_equals_last_seen_which_never_goes_back(
    store: Store, steps: list[tuple[str, int, int]]
) -> None:
    """Whatever servers with whatever clocks do."""
    devices = DeviceRepository(store)
    hardware_id = new_hardware_id()
    latest = ""
    for action, minute, every in steps:
        asked = device(hardware_id, minute)
        if action == "register":
            await devices.register(asked)
        elif action == "seen":
            await devices.seen(asked, before=moment(max(0, minute - every)))
        elif await devices.rename(hardware_id, f"name {minute}") is None:
            continue
        item = await stored(devices, hardware_id)
        assert item["gsi1sk"] == item["last_seen_at"] >= latest
        latest = item["last_seen_at"]
