"""The store's tests: values and expressions by themselves, and one suite of operations for all engines."""
