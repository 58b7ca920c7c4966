"""The JSON formats in the store: a new revision reads and writes them as earlier ones did."""

from typing import Any

import msgspec

from tally.cricket.model.ball_log import decode_ball_log, encode_ball_log
from tally.cricket.model.pipeline import PipelineState

EVENT: dict[str, Any] = {
    "kind": "six",
    "innings": 2,
    "subject": "931191964",
    "ball_id": 17949340750312,
    "over": 4,
    "number": 3,
    "team_id": "542293654",
    "score": "63/2",
    "player": "A Moonfield",
    "other": "S Winterbourne",
    "runs": 12,
    "balls": 5,
}
PIPELINE_STATE: dict[str, Any] = {
    "told": [EVENT],
    "cooldowns": {"wicket:1:128555229": 1794934687389},
    "shown": EVENT,
    "shown_at": 1794934385622,
    "timestamp": 1794934385,
    "fingerprints": {"neutral": "a017e0ebc1573f971daca1bbd0fe80a2"},
    "received_at": 1794934385488,
    "progress": [False, 2, 27, 63, 2],
    "behind": 1,
}
BALL: dict[str, Any] = {
    "id": 17949340750048,
    "innings": 1,
    "over": 1,
    "number": 6,
    "batting_team_id": "46467767",
    "striker_id": "801689899",
    "striker_name": "O Brightwater",
    "non_striker_id": "797864",
    "bowler_id": "665370985",
    "bowler_name": "V Cloudesley",
    "runs_bat": 0,
    "runs_total": 0,
    "wides": 0,
    "noballs": 0,
    "byes": 0,
    "leg_byes": 0,
    "penalty": 0,
    "is_boundary_four": False,
    "is_boundary_six": False,
    "wicket": {
        "player_out_id": "801689899",
        "player_out_name": "O Brightwater",
        "kind": "bowled",
        "fielders": [],
    },
    "updated_at": "2026-11-17T16:45:36.230235Z",
    "is_delivery": True,
}
BALL_LOG: dict[str, Any] = {
    "balls": [BALL],
    "released": 17949340750048,
    "missing": "balls 1 17949340750048",
    "polls": 2,
    "given_up": ["extra 1 4 0"],
}


def test_the_stored_pipeline_state_keeps_its_format() -> None:
    text = msgspec.json.encode(PIPELINE_STATE)
    state = msgspec.json.decode(text, type=PipelineState)
    assert [event.subject for event in state.published_events] == ["931191964"]
    assert state.displayed_event == state.published_events[0]
    assert state.outdated_polls == 1
    assert msgspec.json.encode(state) == text


def test_the_stored_ball_log_keeps_its_format() -> None:
    text = msgspec.json.encode(BALL_LOG).decode()
    log = decode_ball_log(text)
    assert [ball.id for ball in log.released_balls] == [17949340750048]
    assert log.given_up == {"extra 1 4 0"}
    assert encode_ball_log(log) == text
