"""Repositories: one module per table, with its schema and access patterns."""
