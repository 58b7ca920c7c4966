"""The store's tests.

Values and expressions by themselves, and one suite of operations for all engines.
"""
