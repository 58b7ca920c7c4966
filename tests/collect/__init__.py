"""The collect backend, from its repositories to its routes, on SQLite and on AWS's DynamoDB Local."""
