"""Parses DynamoDB's expression strings into the store's trees, with the service's error messages.

    request = Substitutions({"#v": "version"}, {":one": 1})
    request.condition("ConditionExpression", "#v = :one")  # Compare("=", Path(("version",)), …)
    request.check_all_used()

`tokens.py` and `grammar.py` turn a string into a syntax tree that still has placeholders; it is
cached by the string. `conditions.py`, `updates.py` and `key_conditions.py` replace the placeholders
and check the operands. Every error is an `ExpressionError`.
"""

from tally.store.parse.substitutions import Substitutions
from tally.store.parse.tokens import ExpressionError

__all__ = ["ExpressionError", "Substitutions"]
