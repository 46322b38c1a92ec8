package collective

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"drun/internal/each"
	"drun/internal/elapsed"
	"drun/kernel/dtype"
)

// A Description is a call as the status board shows it, without its data.
type Description struct {
	Kind   Kind
	DType  dtype.Type
	Reduce dtype.ReduceOp
	Root   int
	Peer   int
	Tag    int
	Count  int
	Shape  []int
	Group  uint32
	Seq    uint64
	// Backend is the group's, if it has one of its own.
	Backend string
	Origin
	Detail string // see Call.Detail; "" while nobody asked
}

// Name is what the recipe called.
func (d Description) Name() string {
	if d.Builtin != "" {
		return d.Builtin
	}
	return d.Kind.String()
}

func (d Description) String() string {
	var args []string
	add := func(format string, a ...any) { args = append(args, fmt.Sprintf(format, a...)) }
	switch {
	case d.Kind == NoKind || d.Kind == Barrier:
		return d.Name()
	case d.Kind == NewGroup:
		return fmt.Sprintf("%s(number %d)", d.Name(), d.Tag)
	case d.Form == Direct:
		add("%v%s", d.DType, d.shape())
		if d.Kind.Reduces() {
			add("%v", d.Reduce)
		}
	case d.Form == Plain && !d.Kind.PointToPoint():
		add("a plain value")
	}
	switch {
	case d.Kind.Rooted():
		add("root %d", d.Root)
	case d.Kind == Send:
		add("to %d, tag %d", d.Peer, d.Tag%Body)
	case d.Kind == Recv && d.Peer == AnySource:
		add("from any rank, tag %d", d.Tag%Body)
	case d.Kind == Recv:
		add("from %d, tag %d", d.Peer, d.Tag%Body)
	}
	if d.Detail != "" {
		add("%s", d.Detail)
	}
	if len(args) == 0 {
		return d.Name()
	}
	return d.Name() + "(" + strings.Join(args, ", ") + ")"
}

func (d Description) shape() string {
	dims := d.Shape
	if dims == nil {
		dims = []int{d.Count}
	}
	s := make([]string, len(dims))
	for i, n := range dims {
		if s[i] = strconv.Itoa(n); n < 0 {
			s[i] = "*" // may differ from rank to rank
		}
	}
	return "[" + strings.Join(s, ",") + "]"
}

// State is what a rank is doing.
type State uint8

// The states of a rank.
const (
	Starting State = iota
	Running
	Waiting  // in a collective, a send or a receive
	Returned // main has returned
	Failed   // its recipe ended with an error
	Gone     // its process has ended

	// Unseen: on another node, which has not reported what its ranks do.
	Unseen State = 255
)

var states = [...]string{"starting", "running", "waiting", "returned from main", "failed", "gone"}

func (s State) String() string {
	if int(s) >= len(states) {
		return "unknown"
	}
	return states[s]
}

// Over reports whether a rank in this state will make no further call.
func (s State) Over() bool { return s >= Returned && s != Unseen }

// A Row is what the board knows about one rank.
type Row struct {
	Rank  int // global
	State State
	Pos   Position      // where it is, or was last seen
	For   time.Duration // how long it has been there
	Call  Description   // the call it is in, or made last; Kind 0: none yet
	Note  string        // what it does outside of calls, if it said so

	Stopped bool // its process is held still, by SIGSTOP or a debugger
}

// Doing says in words what the rank is doing.
func (r Row) Doing() string {
	if r.Stopped {
		r.Stopped = false
		return "stopped by a signal or a debugger while " + r.Doing()
	}
	at := ""
	if r.Pos.File != "" {
		at = " at " + r.Pos.String()
	}
	since := " for " + elapsed.Text(r.For.Seconds())
	switch {
	case r.State == Unseen:
		return "on another node"
	case r.State == Waiting:
		return "in " + r.Call.String() + at + since
	case r.State.Over():
		return r.State.String() + since + r.last()
	case r.Note != "":
		return r.Note + at + since + r.last()
	}
	return r.State.String() + at + since + r.last()
}

// Status says in a word or two what the rank is doing.
func (r Row) Status() string {
	switch {
	case r.Stopped:
		return "stopped"
	case r.Note != "" && r.State != Waiting && !r.State.Over():
		return r.Note
	}
	return r.State.String()
}

func (r Row) last() string {
	if r.Call.Kind == NoKind {
		return ""
	}
	return fmt.Sprintf("; its last call was %v at %v", r.Call, r.Call.Pos)
}

// Table shows one line per rank.
func Table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  rank\tstate\tcall\tnumber\tposition\tsince")
	for _, r := range rows {
		call, number := "-", "-"
		if r.Call.Kind != NoKind {
			call = r.Call.String()
			if r.Call.Seq > 0 {
				number = strconv.FormatUint(r.Call.Seq, 10) + GroupSuffix(r.Call.Group, r.Call.Backend)
			}
			if r.State != Waiting {
				call = "(last) " + call
			}
		}
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\n", r.Rank, r.Status(), call, number, r.Pos, elapsed.Text(r.For.Seconds()))
	}
	w.Flush()
	return strings.TrimRight(b.String(), "\n")
}

// GroupSuffix names a group, and its backend if it has one of its own; "" for the world.
func GroupSuffix(id uint32, backend string) string {
	switch {
	case id == 0:
		return ""
	case backend != "":
		return fmt.Sprintf(" of group %d over %s", id, backend)
	}
	return fmt.Sprintf(" of group %d", id)
}

func ranksOf(rows []Row) string {
	ranks := each.Of(rows, func(r Row) int { return r.Rank })
	return RankList(ranks)
}

// RankList names ranks for a message: "rank 3", "ranks 0, 2, 3".
func RankList(ranks []int) string { return NumberList("rank", ranks) }

// NumberList names numbered things, as [RankList] does for ranks.
func NumberList(noun string, numbers []int) string {
	switch len(numbers) {
	case 0:
		return "none"
	case 1:
		return noun + " " + strconv.Itoa(numbers[0])
	}
	s := each.Of(numbers, strconv.Itoa)
	return noun + "s " + strings.Join(s, ", ")
}
