package board

// SetProcess has the board watch another process as this rank's.
func (b *Board) SetProcess(pid int) { b.needsOf(b.rank).process.Store(uint32(pid)) }
