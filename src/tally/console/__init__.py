"""The web console: live pages for operators and for first-time visitors.

The application serves it under `/console` and the pages call the backends' services directly.
Each page is a plain function in its own module. `shell` renders the frame around the pages,
`context` holds what they may use, and `mount` adds the console to the application.
Importing NiceGUI takes about a second, so only a process that serves the console imports it.
"""
