"""The gateway to SportMonks: HTTP client, payload structs and their translation to the model."""
