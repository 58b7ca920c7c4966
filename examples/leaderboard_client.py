"""A leaderboard client: a player signs up, earns points and watches the leaderboard.

Run it while `make up` runs, with `python examples/leaderboard_client.py [URL]`. It plays both
parts: the game server, which reports completed actions with the key in `SCOREBOARD_INTERNAL_KEY`
(or in `data/scoreboard-internal.key` if that is not set), and the player, who redeems them for
points.
"""

import json
import os
import secrets
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx


def internal_key() -> str:
    key = os.environ.get("SCOREBOARD_INTERNAL_KEY")
    return (key or Path("data/scoreboard-internal.key").read_text("utf-8")).strip()


def sign_up(client: httpx.Client) -> dict[str, Any]:
    name = f"player_{secrets.token_hex(4)}"
    account = {
        "username": name,
        "email": f"{name}@example.com",
        "password": secrets.token_urlsafe(16),
    }
    response = client.post("/auth/register", json=account)
    data: dict[str, Any] = response.raise_for_status().json()
    return data


def complete_action(client: httpx.Client, user_id: str) -> str:
    """Report a completed action as the game server, and return the signed token for it."""
    action = {"action_id": f"level-{uuid.uuid4()}", "user_id": user_id, "max_score": 100}
    headers = {"X-Internal-API-Key": internal_key()}
    response = client.post("/internal/actions/complete", json=action, headers=headers)
    token: str = response.raise_for_status().json()["action_token"]
    return token


def first_update(client: httpx.Client) -> dict[str, Any]:
    """Read the stream up to its first event: the current leaderboard."""
    with client.stream("GET", "/leaderboard/stream") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                update: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return update
    raise SystemExit("the stream ended without an event")


def main(url: str = "http://127.0.0.1:8080") -> None:
    with httpx.Client(base_url=f"{url}/scoreboard/api/v1", timeout=30) as client:
        account = sign_up(client)
        client.headers["Authorization"] = f"Bearer {account['tokens']['access_token']}"
        for points in (60, 80):
            token = complete_action(client, account["user"]["user_id"])
            redemption = {"action_token": token, "score_delta": points}
            response = client.patch("/scores", json=redemption).raise_for_status()
            # Sending the same token again returns the same response and adds nothing.
            if client.patch("/scores", json=redemption).content != response.content:
                raise SystemExit("a token was redeemed twice")
        mine = client.get("/scores/me").raise_for_status().json()
        print("my score:", mine)
        for entry in first_update(client)["leaderboard"][:5]:
            print(f"{entry['rank']:>3}  {entry['username']:<24} {entry['score']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
