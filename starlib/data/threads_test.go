package data

// Parsing is how many threads parse the stream that a loader reads.
func Parsing(l *Loader) int { return cap(l.active.source.(*pass).reading.slots) }

// Decoding is how many threads would decode a loader's pictures.
func Decoding(l *Loader) int { return cap(newReadAhead(0, l.asked.Parallel()).slots) }
