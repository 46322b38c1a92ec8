package sdk

import (
	"context"
	"errors"
	"testing"
	"time"

	"drun/collective"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

// What an author's code does wrong becomes a failure with its kind.
func TestGuarded(t *testing.T) {
	for _, c := range []struct {
		f      func() error
		status uint8
		text   string
	}{
		{func() error { return errors.New("no cable") }, wire.Broken, "no cable"},
		{func() error { panic("oh dear") }, wire.Panicked, "oh dear"},
		{func() error { var m map[string]int; m["x"] = 1; return nil }, wire.Panicked, //nolint:staticcheck // the panic is wanted
			"assignment to entry in nil map"},
		{func() error { return &collective.CallError{Kind: collective.Send, Problem: "too long"} }, wire.BadCall, "too long"},
		{func() error { return collective.ErrTimeout }, wire.TimedOut, ""},
	} {
		if got := guarded(c.f); got == nil || got.Status != c.status || got.Text != c.text {
			t.Errorf("%v, want %d %q", got, c.status, c.text)
		}
	}
	if got := guarded(func() error { return nil }); got != nil {
		t.Error(got)
	}
}

type counting struct{ collective.Comm }

func (counting) Statistics() map[string]int64 { return map[string]int64{"packets": 7} }

func TestStatistics(t *testing.T) {
	c := &comm{Comm: counting{}}
	call := collective.NewAllReduce(collective.Of(make([]float64, 10)), dtype.Sum)
	for range 3 {
		c.done.add(&call, 5*time.Microsecond)
	}
	barrier := collective.NewBarrier()
	c.done.add(&barrier, time.Millisecond)
	c.done.add(&collective.Call{Kind: 200}, 0) // of a newer drun
	got := c.statistics()
	for name, want := range map[string]int64{"all_reduce calls": 3, "all_reduce bytes": 240, "all_reduce us": 15, "barrier calls": 1, "barrier us": 1000, "packets": 7} {
		if got[name] != want {
			t.Errorf("%s: %d, want %d", name, got[name], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%v", got)
	}
}

type versioned struct{ collective.Backend }

func (versioned) Version() string { return "gloo 0.5" }

func TestVersion(t *testing.T) {
	if got := version(versioned{}); got != "gloo 0.5" {
		t.Error(got)
	}
	if got := version(nil); got == "" {
		t.Error("no version")
	}
}

type mute struct{ collective.Backend }

func (mute) Name() string { return "mute" }

func (mute) Probe(context.Context) error { return errors.New("") }

// A backend that cannot run here is not taken for one that can, though it does not say why.
func TestProblemWithoutReason(t *testing.T) {
	s := &server{backend: mute{}}
	s.stdio.Do(func() {})
	if d, err := s.Describe(t.Context(), &wire.DescribeRequest{}); err != nil || d.Problem != "it gives no reason" {
		t.Errorf("%+v, %v", d, err)
	}
}
