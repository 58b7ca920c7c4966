"""Parsers of activity files (FIT, GPX, TCX), which run in a process of their own.

`process.py` starts `__main__.py` for each file, with limits on processor time and memory and
without the environment of the server. The process detects the format, parses the file and writes a
summary or an error as JSON. Files are hostile until proven otherwise: whatever a file does to its
parser, the server only sees one of these two documents, or the end of the process.
"""
