"""Moves the tables between the embedded store and DynamoDB while servers run.

The store that servers write to is the *active* one; the other is *passive*. A move copies every
item, then applies the changes of the active store to the passive one: it reads each changed item
again, so applying a change twice has no effect. A switch pauses writes, applies the last changes
and exchanges the roles. The move then continues in the other direction, which keeps the way back.
"""
