"""Alarms over HTTP: raised and cleared by readings, by silence, and by changes of rules."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tally.devices.repository.alarm_rules import AlarmRuleRepository
from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.alarms import AlarmRepository
from tally.kit.tasks import cancel_all
from tests.api_response import expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import Board, DevicesServer, Json, open_server
from tests.devices.test_stream import Subscriber, open_stream

TIMEOUT_SECONDS = 60
GROUP: Json = {"group": "g"}
HOT: Json = {"kind": "threshold", "sensor": "bme280_temp_c", "comparison": "above", "limit": 30}


class Sender:
    """Sends values of one sensor, each as old as the test says."""

    def __init__(self, server: DevicesServer, board: Board, key: str) -> None:
        self.server, self.board, self.key, self.number = server, board, key, 0

    async def send(self, value: float, age_seconds: float = 0, **changes: Any) -> None:
        self.number += 1
        time = self.server.clock.milliseconds() - round(age_seconds * 1000)
        reading = self.board.reading(
            batch_id=f"{self.board.hardware_id}_{self.number}",
            timestamp_ms=time,
            sensors={"bme280_temp_c": value},
            **changes,
        )
        await self.server.store_readings(self.board, [reading], self.key)

    async def expect_evaluated(self) -> None:
        """Wait until the rules have seen the last reading: silence counts from then."""
        alarms = AlarmRepository(self.server.application.store)

        async def is_met() -> bool:
            memories = await alarms.memories([self.board.hardware_id])
            return any(memory.newest.endswith(f"_{self.number}") for memory in memories)

        await wait_for(is_met)

    async def alarms(self) -> list[Json]:
        path = f"/alarms?hardware_id={self.board.hardware_id}"
        found: list[Json] = (await self.server.get_json(path))["items"]
        return found

    async def states(self) -> list[str]:
        return [alarm["state"] for alarm in await self.alarms()]

    async def expect(self, *states: str) -> None:
        """Wait until the alarms of the board, newest first, have these states."""

        async def is_met() -> bool:
            return await self.states() == [*states]

        await wait_for(is_met)


async def wait_for(is_met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await is_met():  # noqa: ASYNC110  (a client has no event to await)
            await asyncio.sleep(0.02)


async def new_sender(server: DevicesServer, key: str) -> Sender:
    board = Board()
    await server.post("/register", board.registration(), key=key)
    return Sender(server, board, key)


async def new_rule(server: DevicesServer, condition: Json, sender: Sender, **changes: Any) -> Json:
    body = {
        "name": "rule of a test",
        "condition": condition,
        "scope": {"hardware_id": sender.board.hardware_id},
    } | changes
    response = await server.operator_request("/alarm-rules", "POST", body)
    assert response.status == 201, response
    rule: Json = response.json
    return rule


async def delete_rule(server: DevicesServer, rule: Json) -> None:
    response = await server.operator_request(f"/alarm-rules/{rule['rule_id']}", "DELETE")
    assert response.status == 204, response


async def test_a_threshold_raises_and_clears_with_hysteresis(
    server: DevicesServer, key: str
) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, {**HOT, "hysteresis": 2}, sender)
    assert rule["description"] == "bme280_temp_c is above 30 °C"
    await sender.send(31)
    await sender.expect("open")
    await server.clock.advance(1)
    await sender.send(29)  # not far enough below the limit
    await server.clock.advance(1)
    await sender.send(27.5)
    await sender.expect("cleared")
    [alarm] = await sender.alarms()
    assert [(entry["state"], entry["value"]) for entry in alarm["history"]] == [
        ("open", 31),
        ("cleared", 27.5),
    ]
    assert (alarm["unit"], alarm["history"][1]["by"]) == ("°C", "recovered")
    await delete_rule(server, rule)


async def test_an_alarm_needs_the_whole_duration(server: DevicesServer, key: str) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, {**HOT, "duration_seconds": 300}, sender)
    for value in (31, 32, 20, 31, 33):
        await sender.send(value)
        await server.clock.advance(200)
    assert await sender.states() == []
    await sender.send(31)
    await sender.expect("open")
    await delete_rule(server, rule)


async def test_a_fast_change_raises_an_alarm(server: DevicesServer, key: str) -> None:
    sender = await new_sender(server, key)
    condition = {
        "kind": "rate_of_change",
        "sensor": "bme280_temp_c",
        "direction": "falling",
        "change": 5,
        "window_seconds": 60,
    }
    rule = await new_rule(server, condition, sender)
    for value, seconds in ((30, 61), (24, 30), (18.5, 30)):
        await sender.send(value)
        await server.clock.advance(seconds)
    await sender.expect("open")
    await server.clock.advance(60)
    await sender.send(18)
    await sender.expect("cleared")
    await delete_rule(server, rule)


async def test_late_readings_and_wrong_clocks_raise_no_alarm(
    server: DevicesServer, key: str
) -> None:
    """A late one is older than another of its board, or older than the maximum age."""
    sender = await new_sender(server, key)
    rule = await new_rule(server, HOT, sender)
    await server.clock.advance(4_000)
    await sender.send(31, age_seconds=3_700)
    await sender.send(20)
    await sender.send(31, age_seconds=10)
    await sender.send(31, age_seconds=-2 * 86_400)  # from a clock that is ahead
    await server.clock.advance(1)
    await sender.send(21)
    other = await new_sender(server, key)
    second = await new_rule(server, HOT, other)
    await other.send(31)
    await other.expect("open")  # evaluated after those of the first board
    assert await sender.states() == []
    await delete_rule(server, rule)
    await delete_rule(server, second)


async def test_alarms_follow_the_correction_of_a_clock_that_was_ahead(
    server: DevicesServer, key: str
) -> None:
    """By less than a day: its readings count, and those of the right time are not late."""
    sender = await new_sender(server, key)
    rule = await new_rule(server, {**HOT, "duration_seconds": 60}, sender)
    for value in (20, 31):
        await sender.send(value, age_seconds=-20 * 3_600)
        await server.clock.advance(1)
    await sender.send(32, age_seconds=1)
    await sender.expect_evaluated()
    assert await sender.states() == []
    await server.clock.advance(61)
    await sender.send(33)
    await sender.expect("open")
    await server.clock.advance(1)
    await sender.send(29)
    await sender.expect("cleared")
    await delete_rule(server, rule)


async def test_silence_raises_an_alarm_until_a_reading_arrives(
    server: DevicesServer, key: str
) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, {"kind": "silence", "seconds": 600}, sender)
    for seconds in (599, 700):
        await sender.send(20)
        await sender.expect_evaluated()
        await server.clock.advance(seconds)
    await sender.expect("open")
    await sender.send(20, age_seconds=650)
    await sender.expect("cleared")
    await delete_rule(server, rule)


async def test_silence_counts_from_the_registration_of_a_board(
    server: DevicesServer, key: str
) -> None:
    """Also if the board never sends a reading, and if rules change meanwhile."""
    first = await new_sender(server, key)
    rule = await new_rule(server, {"kind": "silence", "seconds": 600}, first, scope={})
    await first.send(20)
    await first.expect_evaluated()
    await server.clock.advance(500)
    new = await new_sender(server, key)
    await server.clock.advance(599)
    await first.expect("open")
    other = await new_rule(server, HOT, first)
    await first.expect("open")
    assert await new.states() == []
    await server.clock.advance(2)
    await new.expect("open")
    await delete_rule(server, other)
    await delete_rule(server, rule)


async def test_silence_of_many_boards_raises_the_alarms_of_every_rule(
    fresh_server: DevicesServer,
) -> None:
    """Also more alarms than one transaction can raise."""
    server, key = fresh_server, await fresh_server.new_key()
    senders = [await new_sender(server, key) for _ in range(20)]
    for seconds in range(600, 606):
        await new_rule(server, {"kind": "silence", "seconds": seconds}, senders[0], scope={})
    await server.clock.advance(700)

    async def is_met() -> bool:
        return len((await server.get_json("/alarms?state=open&limit=1000"))["items"]) == 6 * 20

    await wait_for(is_met)
    assert [await sender.states() for sender in senders] == [["open"] * 6] * 20


async def test_silence_raises_an_alarm_while_other_boards_send_without_a_pause(
    fresh_server: DevicesServer,
) -> None:
    server, key = fresh_server, await fresh_server.new_key()
    silent, *others = [await new_sender(server, key) for _ in range(4)]
    await new_rule(server, {"kind": "silence", "seconds": 600}, silent, scope={})
    await silent.send(20)
    await silent.expect_evaluated()

    async def send_all(sender: Sender) -> None:
        while True:
            await sender.send(20)

    sending = {asyncio.create_task(send_all(sender)) for sender in others}
    try:
        await server.clock.advance(601)
        await silent.expect("open")
    finally:
        await cancel_all(sending)


async def test_boards_may_send_again_after_an_interruption(store_target: StoreTarget) -> None:
    """While no instance runs, no board can be heard; one that stays silent raises an alarm."""
    settings = await store_target.new_settings()
    async with open_server(settings) as before:
        key = await before.new_key()
        senders = [await new_sender(before, key) for _ in range(2)]
        await new_rule(before, {"kind": "silence", "seconds": 600}, senders[0], scope={})
        for sender in senders:
            await sender.send(20)
            await sender.expect_evaluated()
        await before.clock.advance(20)
        watch = AlarmWatchRepository(before.application.store)
        await wait_for(lambda: _has_evaluated_at(watch, before.clock.milliseconds()))
    await before.clock.advance(3_600)
    async with open_server(settings, before.clock) as after:
        senders[0].server = senders[1].server = after
        await senders[0].send(20)
        await senders[0].expect_evaluated()
        await after.clock.advance(599)
        await senders[0].send(20)
        await senders[0].expect_evaluated()
        assert await senders[1].states() == []
        await after.clock.advance(2)
        await senders[1].expect("open")
        assert await senders[0].states() == []


async def _has_evaluated_at(watch: AlarmWatchRepository, time: int) -> bool:
    return await watch.evaluated_ms() == time


async def test_a_rule_of_a_group_follows_its_members(server: DevicesServer, key: str) -> None:
    """An alarm is cleared when its board leaves the group."""
    sender, other = await new_sender(server, key), await new_sender(server, key)
    group = f"g-{sender.board.hardware_id.replace(':', '')}"
    rule = await new_rule(server, HOT, sender, scope={"group": group})
    path = f"/devices/{sender.board.hardware_id}"
    response = await server.operator_request(path, "PATCH", {"group": group, "tags": ["b", "a"]})
    assert (response.json["group"], response.json["tags"]) == (group, ["a", "b"])
    await other.send(31)
    await sender.send(31)
    await sender.expect("open")
    assert await other.states() == []
    await server.operator_request(path, "PATCH", {"group": None})
    await sender.expect("cleared")
    assert (await sender.alarms())[0]["history"][-1]["by"] == "rule_changed"
    await delete_rule(server, rule)


async def test_a_group_and_the_revision_of_rules_change_together(
    fresh_server: DevicesServer,
) -> None:
    """A crash between two writes would leave the evaluation with the old group for ever."""
    server = fresh_server
    sender = await new_sender(server, await server.new_key())
    rules = AlarmRuleRepository(server.application.store)
    path = f"/devices/{sender.board.hardware_id}"
    await server.operator_request(path, "PATCH", {"tags": ["a"]})
    assert await rules.revision() == 0
    response = await server.operator_request(path, "PATCH", {"group": "g", "friendly_name": "n"})
    assert (response.json["group"], response.json["friendly_name"]) == ("g", "n")
    assert response.json["tags"] == ["a"]
    assert await rules.revision() == 1
    assert (await server.patterns())["Update group of device"]["calls"] == 1
    unknown = await server.operator_request(f"/devices/{Board().hardware_id}", "PATCH", GROUP)
    expect_error(unknown, 404, "device_not_found")
    assert await rules.revision() == 1


async def test_a_changed_or_deleted_rule_clears_its_alarms(server: DevicesServer, key: str) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, HOT, sender)
    await sender.send(35)
    await sender.expect("open")
    changed = {"name": "other", "condition": {**HOT, "limit": 33}, "scope": rule["scope"]}
    response = await server.operator_request(f"/alarm-rules/{rule['rule_id']}", "PUT", changed)
    assert (response.status, response.json["version"]) == (200, 2)
    await sender.expect("cleared")
    await server.clock.advance(1)
    await sender.send(34)
    await sender.expect("open", "cleared")
    await delete_rule(server, rule)
    await sender.expect("cleared", "cleared")
    missing = await server.operator_request(f"/alarm-rules/{rule['rule_id']}")
    expect_error(missing, 404, "alarm_rule_not_found")


async def test_an_operator_acknowledges_an_alarm_once(server: DevicesServer, key: str) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, HOT, sender)
    await sender.send(35)
    await sender.expect("open")
    [alarm] = await sender.alarms()
    path = f"/alarms/{alarm['alarm_id']}/acknowledge"
    await server.operator_request(path, "POST")
    response = await server.operator_request(path, "POST")
    assert (response.status, response.json["state"]) == (200, "acknowledged")
    assert [entry["state"] for entry in response.json["history"]] == ["open", "acknowledged"]
    listed = await server.get_json("/alarms?state=acknowledged&limit=1000")
    assert alarm["alarm_id"] in [item["alarm_id"] for item in listed["items"]]
    await server.clock.advance(1)
    await sender.send(20)
    await sender.expect("cleared")
    expect_error(await server.operator_request(path, "POST"), 409, "alarm_cleared")
    unknown = await server.operator_request("/alarms/nothing/acknowledge", "POST")
    expect_error(unknown, 404, "alarm_not_found")
    await delete_rule(server, rule)


async def test_subscribers_receive_the_steps_of_alarms(server: DevicesServer, key: str) -> None:
    sender = await new_sender(server, key)
    rule = await new_rule(server, HOT, sender)

    async def next_event(subscriber: Subscriber) -> dict[str, str]:
        while True:
            event = await subscriber.event()
            if sender.board.hardware_id in event["data"]:
                return event

    async with open_stream(server, "/devices/alarms/stream") as subscriber:
        assert subscriber.first["event"] == "snapshot"
        await sender.send(35)
        opened = await next_event(subscriber)
        assert (opened["event"], json.loads(opened["data"])["state"]) == ("alarm_opened", "open")
    await server.clock.advance(1)
    await sender.send(20)
    await sender.expect("cleared")
    async with open_stream(server, "/devices/alarms/stream", opened["id"]) as again:
        assert (await next_event(again))["event"] == "alarm_cleared"
    await delete_rule(server, rule)


async def test_two_instances_evaluate_every_reading_once(store_target: StoreTarget) -> None:
    """Also after a restart: what a rule remembers of a board survives."""
    settings = await store_target.new_settings()
    async with open_server(settings) as one, open_server(settings, one.clock) as two:
        key = await one.new_key()
        sender = await new_sender(one, key)
        await new_rule(one, {**HOT, "duration_seconds": 60}, sender)
        for server in (one, two):
            sender.server = server
            await sender.send(31)
            await one.clock.advance(40)
    async with open_server(settings, one.clock) as after:
        sender.server = after
        await sender.send(20, age_seconds=60)  # late
        await sender.send(31)
        await sender.expect("open")
        await one.clock.advance(1)
        for value in (20, 31, 20):
            await one.clock.advance(61)
            await sender.send(value)
        await sender.expect("cleared")


async def test_invalid_rules_are_rejected(server: DevicesServer) -> None:
    board = Board().hardware_id
    invalid: list[tuple[Json, str]] = [
        ({"condition": {**HOT, "limit": 200}}, "condition.limit"),
        ({"condition": {**HOT, "hysteresis": -1}}, "condition.hysteresis"),
        ({"condition": {**HOT, "sensor": "no spaces"}}, "condition.sensor"),
        ({"condition": {"kind": "silence", "seconds": 0}}, "condition.seconds"),
        ({"scope": {"hardware_id": board, "group": "g"}}, "scope"),
        ({"scope": {"group": "no spaces"}}, "scope.group"),
        ({"name": ""}, "name"),
    ]
    for changes, field in invalid:
        body = {"name": "x", "condition": HOT} | changes
        response = await server.operator_request("/alarm-rules", "POST", body)
        expect_error(response, 400, "invalid_field")
        assert response.json["field"] == field


async def test_a_limit_beyond_the_only_bound_of_a_sensor_is_rejected(server: DevicesServer) -> None:
    await server.operator_request("/sensors/co2_ppm", "PUT", {"unit": "ppm", "maximum": 10})
    condition = {**HOT, "sensor": "co2_ppm", "limit": 11}
    body = {"name": "x", "condition": condition}
    response = await server.operator_request("/alarm-rules", "POST", body)
    expect_error(response, 400, "invalid_field")
    assert response.json["detail"].endswith("must be at most 10 ppm, the maximum of co2_ppm")
    await server.operator_request("/sensors/co2_ppm", "DELETE")
