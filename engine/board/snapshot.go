package board

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"drun/collective"
	"drun/internal/each"
)

// RecentCalls is how many of each rank's latest calls a report shows.
const RecentCalls = 5

// A Snapshot is what every rank was doing at one moment, and its latest calls.
type Snapshot struct {
	At    time.Time
	Ranks []RankState
}

// RankState is one rank of a snapshot.
type RankState struct {
	collective.Row
	Recent []PastCall // its latest calls in all groups, newest first
}

// PastCall is a call that a rank made.
type PastCall struct {
	collective.Description
	Began time.Duration // before the snapshot
	Ended bool          // and the rank knows, because it has waited
	Took  time.Duration // if it has ended
	Async bool
	Waits bool // for an asynchronous call: the rank waits for it, or has
}

// Snapshot reads the whole board now.
func (b *Board) Snapshot() *Snapshot {
	s := &Snapshot{At: time.Now(), Ranks: make([]RankState, b.world)}
	for rank := range b.world {
		s.Ranks[rank] = RankState{Row: b.Row(rank), Recent: b.pastCalls(rank, RecentCalls)}
	}
	return s
}

// pastCalls gives a rank's latest n calls, newest first, over all groups.
func (b *Board) pastCalls(rank, n int) (calls []PastCall) {
	t := now()
	for group := range b.head.groups.Load() {
		w, err := b.window(group)
		if err != nil {
			return calls
		}
		made := w.line(rank).calls.Load()
		for i := range min(uint64(n), made, journalLen-1) {
			e := w.entry(rank, made-1-i, b.world)
			d, began, ended, ok := b.read(e, rank, group)
			if !ok {
				continue
			}
			calls = append(calls, PastCall{Description: d, Began: time.Duration(t - began), Ended: ended != 0,
				Took: time.Duration(max(0, ended-began)), Async: e.async, Waits: e.waited})
		}
	}
	slices.SortStableFunc(calls, func(x, y PastCall) int { return int(x.Began - y.Began) })
	return calls[:min(n, len(calls))]
}

// keep stores a snapshot when the run is aborted, since the ranks go on at once. It prefers the rows of the error,
// which were read when the error was found.
func (b *Board) keep(err *cause) {
	s := b.Snapshot()
	put := func(rows ...collective.Row) {
		for _, r := range rows {
			if r.Rank >= 0 && r.Rank < len(s.Ranks) {
				s.Ranks[r.Rank].Row = r
			}
		}
	}
	switch {
	case err.Mismatch != nil:
		put(err.Mismatch.Rows...)
	case err.Timeout != nil:
		put(err.Timeout.Missing...)
	case err.Lost != nil:
		last := err.Lost.Last
		last.State = collective.Gone
		put(last)
	}
	data, jsonErr := json.Marshal(s)
	if jsonErr == nil && len(data) <= b.snapshotSize {
		b.head.snapshotLen = uint32(copy(b.mem[b.snapshotAt:][:b.snapshotSize], data))
	}
}

// Last is the snapshot of the moment at which the run was aborted, or nil.
func (b *Board) Last() *Snapshot {
	if b.head.aborting.Load() != abortReady || b.head.snapshotLen == 0 {
		return nil
	}
	s := new(Snapshot)
	if json.Unmarshal(b.mem[b.snapshotAt:][:min(int(b.head.snapshotLen), b.snapshotSize)], s) != nil || len(s.Ranks) != b.world {
		return nil
	}
	return s
}

// Table shows what each rank does, and since when.
func (s *Snapshot) Table() string {
	rows := each.Of(s.Ranks, func(r RankState) collective.Row { return r.Row })
	return collective.Table(rows)
}

// Calls shows the latest calls of every rank, newest first; ranks that made the same calls share a block. "" if
// there were none.
func (s *Snapshot) Calls() string {
	var texts []string
	ranks := map[string][]string{}
	for _, r := range s.Ranks {
		text := calls(r.Recent)
		if ranks[text] == nil {
			texts = append(texts, text)
		}
		ranks[text] = append(ranks[text], strconv.Itoa(r.Rank))
	}
	if len(texts) == 1 && texts[0] == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString("the latest calls, newest first:\n")
	for _, text := range texts {
		who := "rank"
		if len(ranks[text]) > 1 {
			who = "ranks"
		}
		if text == "" {
			who = "none by " + who
		}
		fmt.Fprintf(&b, "  %s %s%s\n", who, strings.Join(ranks[text], ", "), text)
	}
	return strings.TrimRight(b.String(), "\n")
}

// calls lists calls, each on a line of its own that starts with a line feed.
func calls(list []PastCall) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, c := range list {
		number := ""
		if c.Seq > 0 {
			number = "number " + strconv.FormatUint(c.Seq, 10) + collective.GroupSuffix(c.Group, c.Backend)
		}
		at := "at " + c.Pos.String()
		if fate := c.Outcome(); fate != "" {
			at += ", " + fate
		}
		fmt.Fprintf(w, "\n    %s\t%s\t%s", c.Description, number, at)
	}
	w.Flush()
	return b.String()
}

// Outcome says how far the call got; "" if it ended.
func (c PastCall) Outcome() string {
	switch {
	case c.Ended:
		return ""
	case c.Async && !c.Waits:
		return "asynchronous, not waited for"
	}
	return "not ended"
}

func (s *Snapshot) String() string {
	return strings.TrimSuffix(s.Table()+"\n"+s.Calls(), "\n")
}
