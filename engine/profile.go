package engine

import "fmt"

// Profile has each rank write down how it spends its steps, an optimizer's or, in a recipe without
// one, those that it logs; then the rank ends. See Profiled.
type Profile struct {
	Dir   string // for the files
	Skip  int    // steps before the first that counts
	Steps int
}

// File is where a rank writes its Profiled, as JSON.
func (p *Profile) File(rank int) string { return fmt.Sprintf("%s/%d.profile", p.Dir, rank) }

// Profiled is how a rank has spent some steps in a row.
type Profiled struct {
	World int        `json:"world"` // ranks
	Steps [][]Moment `json:"steps"`
}

// A Moment is a time in which a rank computed, and the call that ended it, if one did.
type Moment struct {
	Compute float64 `json:"compute"` // seconds
	Kind    string  `json:"kind"`    // of the call, as collective.Kind names it; "": none, or Waits
	Bytes   int     `json:"bytes"`   // that each rank gives or, of broadcast and scatter, gets
	Ranks   int     `json:"ranks"`   // of its group
	Async   int     `json:"async"`   // its number, from 1, if the rank goes on at once
	Waits   int     `json:"waits"`   // for the asynchronous call of that number; 0: none
	Took    float64 `json:"took"`    // seconds of the call, if it is synchronous
	At      string  `json:"at"`      // file:line:col
}
