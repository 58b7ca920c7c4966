"""What every instance has, whichever backends it serves: operators, stream limits, readiness.

Repositories of the instance's own tables are in `repository/`, services beside it.
"""
