"""Use cases: queries, the live pipeline, Live Activities and the sync of reference data."""
