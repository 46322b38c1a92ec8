package records

// DigestSize is how many bytes a digest of the parameters has.
const DigestSize = 8

// Updates are digests of a rank's parameters after each of some updates in a row.
type Updates struct {
	Attempt, Rank int
	First         int64  // number of the first, from 1
	Digests       []byte // DigestSize bytes each
}

// Mark says how many updates rank 0 had made when it saved or recorded a step, for Count points at equal
// distances.
type Mark struct {
	Attempt, Seq      int
	Name              string // of the metric; "": checkpoint.save
	Step, Updates     int64
	StepBy, UpdatesBy int64
	Count             int64
}

// At is the number of updates at a step, if that is among the points.
func (m Mark) At(step int64) (updates int64, is bool) {
	n := int64(0) // of the point
	if m.StepBy != 0 {
		n = (step - m.Step) / m.StepBy
	}
	if n < 0 || n >= m.Count || m.Step+n*m.StepBy != step {
		return 0, false
	}
	if m.StepBy == 0 {
		n = m.Count - 1 // the latest of the points that have the same step
	}
	return m.Updates + n*m.UpdatesBy, true
}
