"""The use cases of the devices backend: API keys, registration, ingestion and queries."""
