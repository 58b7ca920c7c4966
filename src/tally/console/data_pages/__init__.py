"""The pages of the data browser: tables, one table, one item, and the export of a table.

Items are read from the engine with `limit`, so that no page reads a whole table. Tables of
credentials are listed, but their items are not readable here. Attributes whose names or values look
like secrets are masked, and cannot be edited.
"""
