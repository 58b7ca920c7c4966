"""Outgoing webhooks: events from the change log, sent to the URLs that operators register.

Each webhook is a named consumer of the change logs that its event kinds come from. It writes
deliveries to a queue in the store, from which one instance sends them: in order per key, signed as
in the Standard Webhooks specification, with retries for a day.
"""
