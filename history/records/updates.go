package records

// DigestSize is the size of a digest of the parameters in bytes.
const DigestSize = 8

// Updates are digests of a rank's parameters after each of several consecutive updates.
type Updates struct {
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	First   int64  `json:"first"`   // number of the first update, from 1
	Digests []byte `json:"digests"` // DigestSize bytes each
}

// Mark says how many updates rank 0 had made when it saved or recorded a step, for Count points at equal distances.
type Mark struct {
	Attempt   int    `json:"attempt"`
	Seq       int    `json:"seq"`
	Name      string `json:"name"` // of the metric; "": checkpoint.save
	Step      int64  `json:"step"`
	Updates   int64  `json:"updates"`
	StepBy    int64  `db:"step_by"`
	UpdatesBy int64  `db:"updates_by"`
	Count     int64  `json:"count"`
}

// At returns the number of updates at a step, if the step is among the points.
func (m Mark) At(step int64) (updates int64, is bool) {
	n := int64(0) // index of the point
	if m.StepBy != 0 {
		n = (step - m.Step) / m.StepBy
	}
	if n < 0 || n >= m.Count || m.Step+n*m.StepBy != step {
		return 0, false
	}
	if m.StepBy == 0 {
		n = m.Count - 1 // the latest of the points, which all have this step
	}
	return m.Updates + n*m.UpdatesBy, true
}
