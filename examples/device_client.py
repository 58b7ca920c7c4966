"""A device client: registers a device, sends readings until they are stored, and reads them back.

Run it while `make up` runs, with `python examples/device_client.py [URL]`. It creates an API key
with the operator token in `TALLY_OPERATOR_TOKEN`, or in `data/operator.token` if that is not set.
"""

import os
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

HARDWARE_ID = "AA:BB:CC:00:11:22"
FIRMWARE = "1.0.0"
MAX_ATTEMPTS = 5


def operator_token() -> str:
    return os.environ.get("TALLY_OPERATOR_TOKEN") or Path("data/operator.token").read_text("utf-8")


def measure(boot_id: str, end_ms: int) -> dict[str, Any]:
    """Return one reading. Its batch id makes sending it twice harmless."""
    return {
        "batch_id": f"{HARDWARE_ID}_{boot_id}_{end_ms - 60_000}_{end_ms}",
        "timestamp_ms": end_ms,
        "sensors": {
            "bme280_temp_c": round(random.uniform(18, 26), 1),
            "humidity_pct": round(random.uniform(40, 60), 1),
        },
    }


def send_until_stored(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Send the readings; after a temporary failure, back off and send the same body again."""
    for attempt in range(MAX_ATTEMPTS):
        delay = 2**attempt
        try:
            response = client.post("/devices/data", json=body)
        except httpx.TransportError as error:
            print(f"no response: {error}")
        else:
            if response.status_code != 429 and response.status_code < 500:
                result: dict[str, Any] = response.raise_for_status().json()
                return result
            delay = int(response.headers.get("Retry-After", delay))
        time.sleep(delay * random.uniform(0.5, 1))
    raise SystemExit(f"the readings were not stored after {MAX_ATTEMPTS} attempts")


def main(url: str = "http://127.0.0.1:8080") -> None:
    operator = {"Authorization": f"Bearer {operator_token().strip()}"}
    with httpx.Client(base_url=url, timeout=30) as client:
        key = client.post("/devices/api-keys", json={"description": "example"}, headers=operator)
        client.headers["X-API-Key"] = key.raise_for_status().json()["api_key"]

        device = {
            "hardware_id": HARDWARE_ID,
            "boot_id": str(uuid.uuid4()),
            "firmware_version": FIRMWARE,
        }
        capabilities = {"sensors": ["bme280"], "features": {}}
        registered = client.post("/devices/register", json={**device, "capabilities": capabilities})
        print("registration:", registered.raise_for_status().json()["status"])

        now_ms = time.time_ns() // 1_000_000
        readings = [measure(device["boot_id"], now_ms - age * 60_000) for age in range(10)]
        result = send_until_stored(client, {**device, "readings": readings})
        print("stored:", len(result["acknowledged_batch_ids"]))
        again = send_until_stored(client, {**device, "readings": readings})
        print("duplicates:", len(again["duplicate_batch_ids"]))

        latest = client.get(f"/devices/devices/{HARDWARE_ID}/latest", headers=operator)
        print("latest:", latest.raise_for_status().json()["sensors"])


if __name__ == "__main__":
    main(*sys.argv[1:])
