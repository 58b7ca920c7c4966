"""The served store: DynamoDB's wire protocol on an engine.

`connection.py` parses HTTP and `service.py` runs one operation per request. `request_model.py`
validates bodies by the service model of botocore; `values.py`, `keys.py` and `expressions.py` turn
them into the store's operations. The other modules hold the operations: `items.py`, `queries.py`,
`batches.py`, `transactions.py`, `control_plane.py` and `partiql/`. Errors have the service's types
and wording.
"""
