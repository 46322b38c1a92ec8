package history

import "slices"

// Status is the state of a run, of an attempt, or of a job that was submitted. There is no other list: the command line, the
// pages, --where and the tables runs, attempts and jobs have these words.
type Status string

// The agent never sets Lost: other processes do, when the agent is gone.
const (
	Pending      Status = "pending" // submitted, and not begun
	Running      Status = "running"
	Done         Status = "done"
	Failed       Status = "failed"
	Interrupted  Status = "interrupted"
	StoppedEarly Status = "stopped early" // by the sweep that it is a cell of
	Preempted    Status = "preempted"     // the scheduler took its machines away
	Cancelled    Status = "cancelled"
	Lost         Status = "lost"
)

// Statuses lists them all.
func Statuses() []Status {
	return []Status{Pending, Running, Done, Failed, Interrupted, StoppedEarly, Preempted, Cancelled, Lost}
}

// Known reports whether there is such a status.
func (s Status) Known() bool { return slices.Contains(Statuses(), s) }

// Ended reports whether nothing more will come of what has this status, unless it is started again.
func (s Status) Ended() bool { return s != Pending && s != Running }
