"""A person's phones and tablets: registered at each launch of the app, and forgotten ninety days after the last."""

from dataclasses import dataclass

from tally.cricket.model.records import UserDevice, device_expiry
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.service.ports import DeviceReady
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What an app says of the device that it runs on."""

    device_token: str
    device_id: str
    platform: str
    os_version: str = ""
    app_version: str = ""


@dataclass(frozen=True, slots=True)
class DeviceService:
    """With `is_only_one`, a new device takes the place of its owner's others.

    `ready` hears of those that can be started on.
    """

    devices: UserDeviceRepository
    clock: Clock
    is_only_one: bool
    ready: DeviceReady

    async def all(self, user_id: str) -> list[UserDevice]:
        """Those of a person, the one that called last first."""
        if self.is_only_one:
            device = await self.devices.get(user_id, self.clock.seconds())
            return [] if device is None else [device]
        return await self.devices.of_user(user_id, self.clock.seconds())

    async def register(self, user_id: str, given: Registration) -> UserDevice:
        now = self.clock.milliseconds()
        device = UserDevice(
            user_id=user_id,
            device_token=given.device_token,
            device_id=given.device_id,
            platform=given.platform.lower(),
            os_version=given.os_version,
            app_version=given.app_version,
            created_at=now,
            updated_at=now,
            expires_at=device_expiry(now // 1000),
        )
        return await self.devices.register(device, is_only_one=self.is_only_one)

    async def update_push_to_start(
        self, user_id: str, token: str, *, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        device = await self._one(user_id, device_token, device_id)
        now = self.clock.milliseconds()
        updated = await self.devices.update_push_to_start(
            device, token, now, device_expiry(now // 1000)
        )
        if updated is None:
            raise _no_device()
        await self.ready(user_id)
        return updated

    async def delete(
        self, user_id: str, *, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        device = await self._one(user_id, device_token, device_id)
        deleted = await self.devices.delete(user_id, device.device_token, self.clock.seconds())
        if deleted is None:
            raise _no_device()
        return deleted

    async def _one(
        self, user_id: str, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        if (device_token is None) == (device_id is None):
            raise Invalid(
                "Give exactly one of deviceToken and deviceId",
                code="invalid_field",
                field="deviceToken",
            )
        for device in await self.devices.of_user(user_id, self.clock.seconds()):
            if device_token in {None, device.device_token} and device_id in {
                None,
                device.device_id,
            }:
                return device
        raise _no_device()


def _no_device() -> NotFound:
    return NotFound("This device is not registered", code="device_not_found")
