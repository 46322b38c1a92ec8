package run

import (
	"testing"
	"time"

	"drun/collective"
)

// A wait is told of when it is long, then each time it has doubled; a new wait
// begins anew.
func TestStall(t *testing.T) {
	var s stall
	at := func(waits ...time.Duration) bool {
		rows := []collective.Row{{State: collective.Running, For: time.Hour}}
		for _, w := range waits {
			rows = append(rows, collective.Row{State: collective.Waiting, For: w * time.Second})
		}
		return s.look(rows)
	}
	told := 0
	for second := range time.Duration(50) {
		if at(second/2, second) {
			told++
		}
	}
	if told != 3 { // at 10, 20 and 40 seconds
		t.Errorf("told %d times", told)
	}
	if at() || at(3) || at(9) || !at(10) {
		t.Error("the next wait was not like the first")
	}
}
