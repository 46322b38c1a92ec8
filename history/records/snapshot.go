package records

import "time"

// Snapshot is what every rank was doing when the run failed, or when a signal asked for it.
type Snapshot struct {
	Time   time.Time   `json:"time"`
	Reason string      `json:"reason"` // the run's status, or the signal that asked
	Ranks  []RankState `json:"ranks" db:"-"`
}

// RankState is one rank of a snapshot.
type RankState struct {
	Rank     int        `json:"rank"`
	State    string     `json:"state"`
	Call     string     `json:"call"`          // the call that it was in or had made last; "": none
	Number   uint64     `json:"number"`        // of the call among its group's collectives, from 1; 0: point to point, or none
	Group    uint32     `json:"group"`         // 0: all ranks
	Position string     `json:"position"`      // in the recipe; "" if unknown
	Seconds  float64    `json:"seconds"`       // for how long it had been doing so
	Recent   []PastCall `json:"recent" db:"-"` // its latest calls, newest first
}

// PastCall is a call that a rank made.
type PastCall struct {
	Call     string   `json:"call"`
	Number   uint64   `json:"number"`
	Group    uint32   `json:"group"`
	Position string   `json:"position"`
	Ago      float64  `json:"ago"`     // seconds from its start to the snapshot
	Seconds  *float64 `json:"seconds"` // how long it took; nil: it had not ended, or had not been waited for
	Async    bool     `json:"async"`
}
