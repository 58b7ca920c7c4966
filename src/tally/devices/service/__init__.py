"""What boards and operators may ask for: `keys`, `registry` (devices), `ingestion` and `history` (readings)."""
