"""The DynamoDB engine: AWS's service, or any service with its protocol.

`opening.py` opens an engine. `engine.py` holds the operations: `requests.py` builds requests,
`sending.py` sends and retries them, `responses.py` parses the responses and `error_mapping.py`
maps the service's errors to the store's. `tables.py` creates and changes tables;
`store/descriptions.py` translates their declarations.
"""

from tally.store.dynamodb.opening import open_dynamodb
from tally.store.dynamodb.options import Credentials, DynamoDBRetryPolicy

__all__ = ["Credentials", "DynamoDBRetryPolicy", "open_dynamodb"]
