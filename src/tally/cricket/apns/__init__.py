"""The gateway to Apple's push service: HTTP/2 to many devices at once, one answer for each push, and broadcast channels.

`model` has what is sent and what came of it, `payloads` the bodies that devices understand, `port`
what the backend may ask for, and `gateway` the one that speaks to Apple. The rest is beneath it:
the provider's token, and the lanes that pushes take.
"""
