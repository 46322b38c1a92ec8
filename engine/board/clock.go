package board

// MaxWorld bounds what a faulty process may ask for: a board's size grows with its world.
const MaxWorld = 1 << 20

// Now reads CLOCK_MONOTONIC in nanoseconds: times that all processes of a
// machine can compare.
func Now() int64 { return now() }
