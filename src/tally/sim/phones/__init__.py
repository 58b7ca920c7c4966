"""Virtual phones: iOS as far as Live Activities need it, and the app's three managers, on the real API and the simulated Apple.

`phone.Phone` is one of them: a person launches and quits the app, follows matches, swipes
activities away, loses the network. `activitykit` is what iOS does by itself; `tokens`, `lifecycle`
and `follows` are the app. Tests, the demo and `tally sim phones` are made of them.
"""
