"""The bulk path: transactions of the same shape, written table by table, also across callers.

The engine enters it by `WriteRouter.submit` (`router.py`). `group_executor.py` runs batches beside
other writes on the writer thread, and in the writer process.
"""
