"""The store on DynamoDB: AWS's service, or anything that speaks its protocol, by its endpoint.

`engine.py` has the operations: `requests.py` turns them into DynamoDB's requests, `patience.py`
sends them and decides what is sent again, `answers.py` reads what comes back, and `faults.py` is
the one table from the service's errors to the store's. `tables.py` makes and changes tables, which
`store/descriptions.py` puts into DynamoDB's words.
"""

from tally.store.dynamodb.engine import Credentials, DynamoDBEngine, open_dynamodb
from tally.store.dynamodb.retry_policy import Patience

__all__ = ["Credentials", "DynamoDBEngine", "Patience", "open_dynamodb"]
