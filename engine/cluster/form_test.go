package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"drun/internal/exit"
	"drun/internal/freeport"
)

// A node without a number takes the lead where the address is its machine's. One that was started there as node 0,
// later, is told so, and the other goes on waiting.
func TestNodeZeroComesAfterOneWithoutANumber(t *testing.T) {
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	joining := func(index int) *Joining {
		return &Joining{Address: address, Secret: "swordfish", ID: "run", Index: index, Count: 2}
	}
	hello := func(pid int) *Hello {
		return &Hello{ID: "run", Count: 2, Procs: 1, PID: pid, Host: "here", Machine: "this"}
	}
	form := func(ctx context.Context, j *Joining, pid int) error {
		_, err := Form(ctx, j, hello(pid), Waiting{Timeout: time.Minute, MaxRanks: 2, Note: func(string) {}}, func(*Cluster) error { return nil })
		return err
	}
	first := joining(Unnumbered)
	if leads, err := first.Lead(t.Context(), time.Minute); !leads || err != nil {
		t.Fatal(leads, err)
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- form(ctx, first, 17) }()

	began := time.Now()
	err = form(t.Context(), joining(0), 18)
	if err == nil || exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), "node 0 (process 17 on here), which was started without --node-rank") {
		t.Errorf("node 0 is told: %v", err)
	}
	if took := time.Since(began); took > 2*leaderLimit {
		t.Errorf("after %v", took)
	}
	select {
	case err := <-ended:
		t.Errorf("the first has ended: %v", err)
	default:
	}
	cause := errors.New("interrupted")
	interrupt(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("the first ended with %v", err)
	}
}

func TestResolvable(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "localhost:1", ":1", "no port"} { // Listen says what is wrong with the last
		if err := resolvable(t.Context(), address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := resolvable(t.Context(), "nobody.invalid:1"); exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), "nobody.invalid") {
		t.Errorf("an unknown name: %v", err)
	}
}
