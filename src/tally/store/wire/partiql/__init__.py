"""PartiQL: SQL statements on the store's operations.

`tokens.py` splits a statement, `values.py` reads its literals and parameters, `conditions.py` its
conditions and `grammar.py` the whole statement into one of the types of `statements.py`. Conditions
become the store's trees, so engines evaluate them. `selects.py` reads, `writes.py` turns statements
into writes, and `operations.py` holds the three operations of the protocol.
"""
