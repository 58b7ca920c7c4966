"""Tables and access patterns. `main` combines those of the main table, one module per item."""
