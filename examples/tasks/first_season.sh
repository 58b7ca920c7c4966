#!/usr/bin/env bash
# First season: a board whose seasons end every minute, a player who scores on it, and the final standings.
#
# Run it while `make up` runs, in the same directory. It waits for the end of the season: at most a minute.
set -euo pipefail
TALLY=${TALLY:-http://127.0.0.1:8080}
API=$TALLY/scoreboard/api/v1
GAME_KEY=$(cat data/scoreboard-internal.key)
OPERATOR=$(cat data/operator.token)
NAME=first-season-$RANDOM

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
send() { curl -sSf "$API$1" -H 'Content-Type: application/json' "${@:2}"; }

send /admin/boards -H "Authorization: Bearer $OPERATOR" -o /dev/null \
  -d "{\"id\": \"$NAME\", \"name\": \"First season\", \"reset\": {\"cron\": \"* * * * *\"}}"
PLAYER=$(send /auth/register \
  -d "{\"username\": \"ana_$RANDOM\", \"email\": \"$NAME@example.com\", \"password\": \"a long password\"}")
TOKEN=$(field '["tokens"]["access_token"]' <<< "$PLAYER")
USER_ID=$(field '["user"]["user_id"]' <<< "$PLAYER")

# The game server reports an action; the player exchanges its token for points.
ACTION=$(send /internal/actions/complete -H "X-Internal-API-Key: $GAME_KEY" \
  -d "{\"action_id\": \"$NAME\", \"user_id\": \"$USER_ID\", \"max_score\": 100, \"boards\": [\"$NAME\"]}" | field '["action_token"]')
send /scores -H "Authorization: Bearer $TOKEN" -X PATCH -d "{\"action_token\": \"$ACTION\", \"score_delta\": 60}" -o /dev/null

echo "waiting for the end of the season"
for _ in {1..90}; do
  SEASONS=$(send "/boards/$NAME/seasons")
  [ "$(field '["items"]' <<< "$SEASONS")" = "[]" ] || break
  sleep 1
done
send "/boards/$NAME/seasons/1" | field '["items"][0]'
