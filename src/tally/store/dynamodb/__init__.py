"""The store on DynamoDB: AWS's service, or anything that speaks its protocol, by its endpoint.

`engine.py` has the operations, `requests.py` turns them into DynamoDB's requests, `answers.py` reads what comes back, `faults.py` is
the one table from the service's errors to the store's, `patience.py` decides what is sent again, and `tables.py` makes tables.
"""
