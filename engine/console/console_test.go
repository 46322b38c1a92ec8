package console

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"drun/history/records"
)

func TestRanks(t *testing.T) {
	for text, want := range map[string]string{"": "0123", "all": "0123", "none": "", "0": "0", "1,3": "13", "0-2": "012", "3,0-1": "013"} {
		shows, err := Ranks(text, 4)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c := New(&out, &out, false, false, shows, nil)
		for rank := range 4 {
			c.Line(rank, rank%2 == 1, fmt.Sprint(rank))
		}
		if got := strings.ReplaceAll(out.String(), "\n", ""); got != want {
			t.Errorf("%q shows ranks %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"4", "0-4", "x", "1,", "-1", "2-1", "0 1", "All"} {
		if _, err := Ranks(text, 4); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if _, err := Ranks("7", 0); err != nil {
		t.Errorf("a rank of a world that is not known: %v", err)
	}
}

// A terminal shows the step, the latest metrics and, where the end is known, the time left.
func TestBar(t *testing.T) {
	var out, err bytes.Buffer
	c := New(&out, &err, false, true, nil, nil)
	c.Metrics([]records.Point{{Name: "loss"}})
	if err.Len() > 0 {
		t.Errorf("a run that may be over in a moment has a bar: %q", err.String())
	}
	c.began, c.drawn = time.Time{}, time.Time{}
	c.Metrics([]records.Point{{Name: "loss", Step: 7, Value: 0.123456}, {Name: "\x1b[31mred", Step: 7, Value: math.NaN()}})
	if got := err.String(); !strings.Contains(got, "loss 0.1235") || !strings.Contains(got, "8/-") || strings.Contains(got, "\x1b[31m") {
		t.Errorf("without a bar of the recipe: %q", got)
	}
	err.Reset()
	c.Progress(&records.Progress{Label: "epoch 1", Current: 3, Total: 9})
	if got := err.String(); !strings.Contains(got, "epoch 1  loss 0.1235") || !strings.Contains(got, "3/9") {
		t.Errorf("with one: %q", got)
	}
	err.Reset()
	c.drawn = time.Time{}
	var many []records.Point
	for i := range 1000 {
		many = append(many, records.Point{Name: fmt.Sprint("metric", i), Value: float64(i)})
	}
	c.Metrics(many)
	if n := utf8.RuneCountInString(c.description()); n > 120-barRoom-barWidth {
		t.Errorf("the description takes %d columns", n)
	}
	c.Metrics([]records.Point{{Name: "one more", Value: 1}, {Name: "loss", Value: 0.75}})
	if text := c.description(); !strings.Contains(text, "loss 0.75") || strings.Contains(text, "one more") {
		t.Errorf("after a metric too many: %q", text)
	}
	c.Line(0, false, "text")
	if out.String() != "text\n" {
		t.Errorf("a line is %q", out.String())
	}
	c.Progress(&records.Progress{Label: "epoch 1", Current: 9, Total: 9, Finished: true})

	// The loop of the next epoch begins anew, also where the end of the one before did not come.
	c.Progress(&records.Progress{Label: "train", Current: 8, Total: 9})
	first := c.bar
	c.Progress(&records.Progress{Label: "train", Current: 0, Total: 9})
	if c.bar == first {
		t.Error("the bar of the next epoch goes backwards")
	}
	c.Close()

	// Nobody watches: nothing but lines.
	err.Reset()
	c = New(&out, &err, false, false, nil, nil)
	c.Metrics(many)
	c.Progress(&records.Progress{Label: "epoch 1", Current: 3, Total: 9})
	if err.Len() > 0 {
		t.Errorf("a pipe gets %q", err.String())
	}
}
