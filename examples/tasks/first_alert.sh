#!/usr/bin/env bash
# First alert: an alarm rule, a reading above its limit, and the alarm that it opens.
#
# Run it while `make up` runs, in the same directory.
set -euo pipefail
TALLY=${TALLY:-http://127.0.0.1:8080}
OPERATOR=(-H "Authorization: Bearer $(cat data/operator.token)")
DEVICE="AA:BB:CC:00:00:02"
BOOT_ID=$(python3 -c 'import uuid; print(uuid.uuid4())')

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
call() { curl -sSf "$TALLY$1" -H 'Content-Type: application/json' "${@:2}"; }

KEY=$(call /devices/api-keys "${OPERATOR[@]}" -d '{"description": "first alert"}' | field '["api_key"]')
# It opens at once: the value need not stay above the limit for some time.
RULE=$(call /devices/alarm-rules "${OPERATOR[@]}" -d "{
  \"name\": \"Too hot\",
  \"condition\": {\"kind\": \"threshold\", \"sensor\": \"bme280_temp_c\", \"comparison\": \"above\", \"limit\": 35},
  \"scope\": {\"hardware_id\": \"$DEVICE\"}
}" | field '["rule_id"]')

# A reading that is older than the rule raises no alarm, so its time has milliseconds.
END=$(python3 -c 'import time; print(time.time_ns() // 1_000_000)')
call /devices/data -H "X-API-Key: $KEY" -o /dev/null -d "{
  \"hardware_id\": \"$DEVICE\", \"boot_id\": \"$BOOT_ID\", \"firmware_version\": \"1.0.0\",
  \"readings\": [{
    \"batch_id\": \"${DEVICE}_${BOOT_ID}_$((END - 60000))_${END}\",
    \"timestamp_ms\": $END,
    \"sensors\": {\"bme280_temp_c\": 41}
  }]
}"
# Alarms are evaluated from the change log, a moment after the reading is stored.
for _ in {1..100}; do
  ALARMS=$(call "/devices/alarms?hardware_id=$DEVICE" "${OPERATOR[@]}")
  [ "$(field '["items"]' <<< "$ALARMS")" = "[]" ] || break
  sleep 0.2
done
ALARM=$(field '["items"][0]["alarm_id"]' <<< "$ALARMS")
field '["items"][0]["state"]' <<< "$ALARMS"
call "/devices/alarms/$ALARM/acknowledge" "${OPERATOR[@]}" -X POST | field '["state"]'
call "/devices/alarm-rules/$RULE" "${OPERATOR[@]}" -X DELETE
