package sharedmem

// Pause tells the processor that it is in a loop that waits for memory.
func Pause()
