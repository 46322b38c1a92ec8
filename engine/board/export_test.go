package board

// SetProcess has the board watch another process as this rank's.
func (b *Board) SetProcess(pid int) { b.needsOf(b.rank).process.Store(uint32(pid)) }

// Claim begins an Abort, which the function that it returns completes.
func (b *Board) Claim(by int, err error) (publish func()) {
	b.head.aborting.Store(abortClaimed)
	return func() {
		c := causeOf(err)
		b.publish(by, c, c.encode(err, b.causeSize))
	}
}
