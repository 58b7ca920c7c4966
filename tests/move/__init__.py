"""Tests of moves between the embedded store and DynamoDB."""
