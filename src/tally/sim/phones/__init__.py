"""Virtual iPhones with the cricket app, on the real cricket API and the APNs simulator.

`phone.VirtualPhone` combines both sides: `activitykit` is what iOS does, `tokens`, `lifecycle` and
`follows` are the app's managers. Tests, the demo and `tally sim phones` use it.
"""
