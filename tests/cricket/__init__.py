"""The cricket backend, from its rules to its routes, on SQLite and on AWS's DynamoDB Local."""
