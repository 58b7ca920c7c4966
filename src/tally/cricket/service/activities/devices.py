"""Devices of users: the app registers its device at each launch; it expires after 90 days.

A device belongs to the last user who registered its token, its ID or its push-to-start token. The
Live Activities of the previous one end on it, as they do when a user signs out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tally.cricket.model.errors import device_not_found, one_device_identifier
from tally.cricket.model.records import UserDevice, device_expiry
from tally.cricket.repository.devices import DeviceKey, UserDeviceRepository
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AppInstallation:
    """The app's description of the device it runs on."""

    device_token: str
    device_id: str
    platform: str
    os_version: str = ""
    app_version: str = ""


@dataclass(frozen=True, slots=True)
class DeviceService:
    """Registers and deletes devices.

    With `is_only_one`, a new device replaces the user's others.
    """

    devices: UserDeviceRepository
    clock: Clock
    is_only_one: bool
    activities: ActivityService

    async def all(self, user_id: str) -> list[UserDevice]:
        """Return the devices of a user, the most recently registered first."""
        if self.is_only_one:
            device = await self.devices.get(user_id, self.clock.seconds())
            return [] if device is None else [device]
        return await self.devices.list_by_user(user_id, self.clock.seconds())

    async def register(self, user_id: str, installation: AppInstallation) -> UserDevice:
        now = self.clock.milliseconds()
        device = UserDevice(
            user_id=user_id,
            device_token=installation.device_token,
            device_id=installation.device_id,
            platform=installation.platform.lower(),
            os_version=installation.os_version,
            app_version=installation.app_version,
            created_at=now,
            updated_at=now,
            expires_at=device_expiry(now // 1000),
        )
        registered = await self.devices.register(device, is_only_one=self.is_only_one)
        owners = await self.devices.owners_of_token(device.device_token)
        await self._hand_over(
            registered, owners | await self.devices.owners_of_id(device.device_id)
        )
        return registered

    async def update_push_to_start(
        self, user_id: str, token: str, *, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        device = await self._find(user_id, device_token, device_id)
        now = self.clock.milliseconds()
        updated = await self.devices.update_push_to_start(
            device, token, now, device_expiry(now // 1000)
        )
        if updated is None:
            raise device_not_found()
        await self._hand_over(updated, await self.devices.owners_of_start_token(token))
        await self.activities.on_device_ready(user_id)
        return updated

    async def delete(
        self, user_id: str, *, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        device = await self._find(user_id, device_token, device_id)
        deleted = await self.devices.delete(user_id, device.device_token, self.clock.seconds())
        if deleted is None:
            raise device_not_found()
        await self.activities.end_on_device(user_id, deleted.device_id)
        return deleted

    async def _hand_over(self, device: UserDevice, owners: Iterable[DeviceKey]) -> None:
        """Take a device from its previous users: their records and Live Activities on it."""
        for key in sorted(owners):
            if key[0] == device.user_id:
                continue
            previous = await self.devices.hand_over(key, device.updated_at)
            if previous is not None:
                await self.activities.end_on_device(previous.user_id, previous.device_id)

    async def _find(
        self, user_id: str, device_token: str | None, device_id: str | None
    ) -> UserDevice:
        if (device_token is None) == (device_id is None):
            raise one_device_identifier()
        for device in await self.devices.list_by_user(user_id, self.clock.seconds()):
            if device_token in {None, device.device_token} and device_id in {
                None,
                device.device_id,
            }:
                return device
        raise device_not_found()
