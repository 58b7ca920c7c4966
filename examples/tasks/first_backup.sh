#!/usr/bin/env bash
# First restored back-up: back up a running server, restore into another directory, and check the result.
#
# Run it while `make up` runs, in the same directory and with the environment of `make` (`. .venv/bin/activate`).
set -euo pipefail
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

TALLY_DATA_DIR=data tally backup "$FOLDER/first.tar"
# The signature is verified with the key of the data directory that was backed up.
export TALLY_BACKUP_KEY TALLY_DATA_DIR=$FOLDER/restored
TALLY_BACKUP_KEY=$(cat data/backup.key)
tally restore "$FOLDER/first.tar"
tally store check
cmp data/operator.token "$TALLY_DATA_DIR/operator.token" && echo "The operator's token is the same."
