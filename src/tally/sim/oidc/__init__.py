"""An OpenID Connect issuer in the shape of Amazon Cognito with its Hosted UI.

Browsers come to log in, as people who are made up; applications come to change codes into tokens;
anyone may read the keys. Nothing is kept but in memory. `issuer.Issuer` is the object that tests
and the demo hold; collect logs people in through it, and cricket takes its tokens.
"""
