#!/usr/bin/env bash
# First reading: an operator creates a key, a board registers and sends a reading, and the operator reads it.
#
# Run it while `make up` runs, in the same directory.
set -euo pipefail
TALLY=${TALLY:-http://127.0.0.1:8080}
OPERATOR=$(cat data/operator.token)
DEVICE="AA:BB:CC:00:00:01"
BOOT_ID=$(python3 -c 'import uuid; print(uuid.uuid4())')

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
call() { curl -sSf "$TALLY$1" -H 'Content-Type: application/json' "${@:2}"; }

KEY=$(call /devices/api-keys -H "Authorization: Bearer $OPERATOR" -d '{"description": "first reading"}' | field '["api_key"]')
call /devices/register -H "X-API-Key: $KEY" -d "{
  \"hardware_id\": \"$DEVICE\", \"boot_id\": \"$BOOT_ID\", \"firmware_version\": \"1.0.0\",
  \"capabilities\": {\"sensors\": [\"bme280\"], \"features\": {}}
}" | field '["status"]'

END=$(date +%s)000
START=$((END - 60000))
call /devices/data -H "X-API-Key: $KEY" -d "{
  \"hardware_id\": \"$DEVICE\", \"boot_id\": \"$BOOT_ID\", \"firmware_version\": \"1.0.0\",
  \"readings\": [{
    \"batch_id\": \"${DEVICE}_${BOOT_ID}_${START}_${END}\",
    \"timestamp_ms\": $END,
    \"sensors\": {\"bme280_temp_c\": 22.5}
  }]
}" | field '["acknowledged_batch_ids"]'
call "/devices/devices/$DEVICE/latest" -H "Authorization: Bearer $OPERATOR" | field '["sensors"]'
