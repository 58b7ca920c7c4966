"""DynamoDB's semantics behind a dozen async operations, on SQLite in this process or on any service that speaks DynamoDB.

Read `schema.py` for how a table is declared, `expressions.py` for how a condition is written,
`api.py` for the operations and what an engine is, and `access.py` for how a repository method
becomes an access pattern that the store holds to its word.
"""
