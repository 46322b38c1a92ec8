package check

import (
	"strings"

	"go.starlark.net/syntax"
)

// An event is a call of a collective, or a part of the recipe with collectives in it that every rank executes alike:
// a loop or a choice.
type event struct {
	name  string     // "dist.barrier"; "loop", "choice"
	group *object    // of a collective in a group of ranks, nil: the world's
	chain []callSite // the calls that lead to it, the innermost last
	inner []*event   // within a loop or choice
}

type callSite struct {
	pos syntax.Position
	fn  string
}

// signature returns a string that is equal for events with the same collectives in the same order.
func signature(events []*event) string {
	var b strings.Builder
	write(&b, events)
	return b.String()
}

func write(b *strings.Builder, events []*event) {
	for _, e := range events {
		b.WriteString(e.name)
		if e.group != nil {
			b.WriteByte('@')
		}
		if e.inner != nil {
			b.WriteByte('{')
			write(b, e.inner)
			b.WriteByte('}')
		}
		b.WriteByte(';')
	}
}

// block wraps the events of a loop or choice, if there are any.
func block(name string, inner []*event) []*event {
	if len(inner) == 0 {
		return nil
	}
	return []*event{{name: name, inner: inner}}
}

// choice returns the event for several ways of which all ranks take the same one.
func choice(ways ...[]*event) []*event {
	var inner []*event
	alike := true
	for _, way := range ways {
		alike = alike && signature(way) == signature(ways[0])
		inner = append(inner, block("way", way)...)
	}
	if alike && len(ways) > 0 {
		return ways[0]
	}
	return block("choice", inner)
}

// differ removes the common beginning and end of two sequences.
func differ(a, b []*event) (onlyA, onlyB []*event) {
	equal := func(x, y *event) bool { return signature([]*event{x}) == signature([]*event{y}) }
	for len(a) > 0 && len(b) > 0 && equal(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && equal(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// collectives calls visit for every collective of a sequence.
func collectives(events []*event, visit func(*event)) {
	for _, e := range events {
		if len(e.chain) > 0 {
			visit(e)
		}
		collectives(e.inner, visit)
	}
}
