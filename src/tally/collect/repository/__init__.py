"""Tables and access patterns. `main` combines the patterns of the main table, one module per item."""
