"""A phone that follows a match: registers, follows, and shows each update of the Lock Screen text.

Run it while `make up` runs, with `python examples/match_follower.py [URL] [ISSUER] [UPDATES]`. It
signs in at the simulated user pool (default: http://127.0.0.1:8104), waits for a live match and
stops after the given number of updates (default: 5).
"""

import json
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx

DEVICE_ID = "EXAMPLE-PHONE-1"
POLL_SECONDS = 1


def sign_in(issuer: str) -> str:
    # The simulator's control API requires this header, which web pages cannot send.
    headers = {"X-Tally-Control": "yes"}
    response = httpx.post(f"{issuer}/_sim/tokens", json={"sub": "example-phone"}, headers=headers)
    token: str = response.raise_for_status().json()["token"]
    return token


def register_phone(client: httpx.Client) -> None:
    """Register the tokens that iOS would create: for alerts, and for starting a Live Activity."""
    device = {
        "deviceToken": secrets.token_hex(32),
        "deviceId": DEVICE_ID,
        "platform": "ios",
        "osVersion": "17.4",
    }
    client.post("/user/device", json=device).raise_for_status()
    start = {"pushToStartToken": secrets.token_hex(32), "deviceId": DEVICE_ID}
    client.put("/user/device/push-to-start", json=start).raise_for_status()


def wait_for_live_match(client: httpx.Client) -> dict[str, Any]:
    while True:
        matches = client.get("/matches/live").raise_for_status().json()["items"]
        if matches:
            match: dict[str, Any] = matches[0]
            return match
        time.sleep(POLL_SECONDS)


def display_updates(client: httpx.Client, match_id: str) -> Iterator[dict[str, Any]]:
    """Yield the display state of the match now, and each time it changes."""
    with client.stream("GET", f"/matches/{match_id}/events") as stream:
        event = ""
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data" and event == "display":
                yield json.loads(value)["display"]


def main(
    url: str = "http://127.0.0.1:8080", issuer: str = "http://127.0.0.1:8104", updates: str = "5"
) -> None:
    headers = {"Authorization": f"Bearer {sign_in(issuer)}"}
    with httpx.Client(base_url=f"{url}/cricket", headers=headers, timeout=60) as client:
        register_phone(client)
        match = wait_for_live_match(client)
        print("following", " v ".join(team["name"] for team in match["teams"]))
        client.post(f"/user/follow/{match['matchId']}", json={}).raise_for_status()
        try:
            states = display_updates(client, match["matchId"])
            for _, state in zip(range(int(updates)), states, strict=False):
                print(state["lines"]["lockScreen"])
        finally:
            client.delete(f"/user/follow/{match['matchId']}").raise_for_status()


if __name__ == "__main__":
    main(*sys.argv[1:])
