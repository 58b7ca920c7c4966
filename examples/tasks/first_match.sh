#!/usr/bin/env bash
# First followed match: a phone signs in, registers, follows a live match and shows its next event.
#
# Run it while `make up` runs. The simulated user pool issues tokens without a password.
set -euo pipefail
TALLY=${TALLY:-http://127.0.0.1:8080}
ISSUER=${ISSUER:-http://127.0.0.1:8104}

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
post() { curl -sSf "$1" -H 'Content-Type: application/json' "${@:2}"; }

TOKEN=$(post "$ISSUER/_sim/tokens" -H 'X-Tally-Control: yes' -d '{"sub": "first-match"}' | field '["token"]')
USER=(-H "Authorization: Bearer $TOKEN")
post "$TALLY/cricket/user/device" "${USER[@]}" -o /dev/null \
  -d '{"deviceToken": "8f2c1a90b48f2c1a90b4", "deviceId": "FIRST-MATCH", "platform": "ios", "osVersion": "17.4"}'
post "$TALLY/cricket/user/device/push-to-start" "${USER[@]}" -o /dev/null -X PUT \
  -d '{"pushToStartToken": "c0ffee00c0ffee00c0ffee00", "deviceId": "FIRST-MATCH"}'

for _ in {1..60}; do # the next simulated match starts within a minute
  LIVE=$(curl -sSf "$TALLY/cricket/matches/live" "${USER[@]}")
  [ "$(field '["items"]' <<< "$LIVE")" = "[]" ] || break
  sleep 1
done
MATCH=$(field '["items"][0]["matchId"]' <<< "$LIVE")
post "$TALLY/cricket/user/follow/$MATCH" "${USER[@]}" -d '{}' -o /dev/null
curl -sSf "$TALLY/cricket/matches/$MATCH/display" "${USER[@]}" | field '["display"]["lines"]["lockScreen"]'
# The stream begins with the current state and continues with each change.
{ curl -sN --max-time 60 "$TALLY/cricket/matches/$MATCH/events" "${USER[@]}" || true; } | grep -m 1 '^event: display'
curl -sSf -X DELETE "$TALLY/cricket/user/follow/$MATCH" "${USER[@]}"
