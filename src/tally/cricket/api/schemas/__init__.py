"""Request and response schemas, one module per topic, and the conversion of records to responses.

Field names are in camel case and times are epoch milliseconds, as in the tables. The start time of
a match is an RFC 3339 text. A body has one field per value of its JSON object.
"""
