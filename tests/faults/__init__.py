"""What must hold when things go wrong: crashes, contention, bad input, full disks, other processes on the same data.

Everything here is real: processes that are killed, files that are damaged, disks that are full. A
module without `test_` in its name is either a child process that a test starts (`writers`,
`contender`, `peer`, `ground`), or what the tests share: `children` starts and reads them, `audit`
compares a whole database with itself, `steps` says what a key must hold after its n-th write,
`linearise` and `precedence` judge whether a recorded history could have happened one call at a
time.
"""
