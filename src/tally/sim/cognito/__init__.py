"""Amazon Cognito for the cricket app: the OIDC issuer of `tally.sim.oidc` with that app's client, and tokens for the asking."""
