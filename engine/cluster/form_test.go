package cluster

import (
	"os"
	"strings"
	"syscall"
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
	form := func(j *Joining, pid int, signals chan os.Signal) error {
		_, err := Form(j, hello(pid), Waiting{Timeout: time.Minute, MaxRanks: 2, Signals: signals, Note: func(string) {}}, func(*Cluster) error { return nil })
		return err
	}
	first := joining(Unnumbered)
	if leads, err := first.Lead(time.Minute, nil); !leads || err != nil {
		t.Fatal(leads, err)
	}
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- form(first, 17, signals) }()

	began := time.Now()
	err = form(joining(0), 18, make(chan os.Signal))
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
	signals <- syscall.SIGINT
	if err := <-ended; exit.CodeOf(err) != exit.Interrupted {
		t.Errorf("the first ended with %v", err)
	}
}
