"""Simulates an OpenID Connect issuer that behaves like Amazon Cognito with its Hosted UI.

Users log in through a browser, applications exchange codes for tokens, and anyone may read the
keys. All state is in memory. Tests and the demo use `simulator.OidcSimulator`, and
`cognito.CognitoSimulator` for the cricket app.
"""
