package board

// MaxWorld is how many ranks a node's board holds.
const MaxWorld = maxWorld

// Now reads CLOCK_MONOTONIC in nanoseconds: times that all processes of a
// machine can compare.
func Now() int64 { return now() }
