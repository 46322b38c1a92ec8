package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"drun/collective"
	"drun/plugins/sdk"
)

// act makes this program a plugin that behaves as its name says.
func act(name string) {
	if name == "sleeper" {
		time.Sleep(time.Minute)
	}
	if name == "stops-before-it-starts" {
		stopSelf()
	}
	sdk.Serve(faulty(name))
}

func stopSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(time.Minute) // this thread may go on for a moment
}

// faulty is a backend for a world of one rank whose calls go wrong.
type faulty string

func (f faulty) Name() string { return string(f) }

func (f faulty) Properties() collective.Properties {
	return collective.Properties{WholeWorld: f == "conductor", BetweenNodes: len(f) / 9}
}

func (f faulty) Probe(context.Context) error {
	if f == "stops-when-asked" {
		stopSelf()
	}
	if f == "unable" || f == "conductor" {
		return errors.New("this machine has no such device")
	}
	return nil
}

func (f faulty) Open(_ context.Context, world collective.World) (collective.Comm, error) {
	switch f {
	case "stops-when-it-opens":
		stopSelf()
	case "closed":
		return nil, errors.New("the door is closed")
	case "mirror":
		return nil, fmt.Errorf("%+v", world)
	case "frantic":
		panic("no way in")
	}
	return &faultyComm{fault: string(f), stop: make(chan struct{})}, nil
}

type faultyComm struct {
	fault string
	stop  chan struct{}
}

func (c *faultyComm) Rank() int { return 0 }
func (c *faultyComm) Size() int {
	if c.fault == "boaster" {
		return 7
	}
	return 1
}
func (c *faultyComm) Split(context.Context, collective.Group) (collective.Comm, error) {
	return nil, errors.New("no groups here")
}
func (c *faultyComm) Abort(error) {
	if c.fault != "deaf" {
		close(c.stop)
	}
}
func (c *faultyComm) Close() error { return nil }

func (c *faultyComm) Start(call *collective.Call) (collective.Work, error) {
	fmt.Println("stdout is nobody's")
	switch c.fault {
	case "refuser":
		return nil, errors.New("I would prefer not to")
	case "panicker":
		panic("oh dear")
	case "crasher":
		fmt.Fprintln(os.Stderr, "going down")
		go func() { panic("engine on fire") }()
		select {}
	case "quitter":
		fmt.Fprintln(os.Stderr, "I quit")
		os.Exit(3)
	case "flooder":
		line := strings.Repeat("x", 99)
		for range 200_000 {
			fmt.Fprintln(os.Stderr, line)
		}
	}
	return &faultyWork{c}, nil
}

type faultyWork struct{ c *faultyComm }

func (w *faultyWork) Done() bool { return false }

func (w *faultyWork) Wait(context.Context) error {
	switch w.c.fault {
	case "flooder":
		return nil
	case "nameless": // a message from nowhere: Source is 99
		return nil
	}
	<-w.c.stop // also "deaf", which does not close it
	return errors.New("stopped")
}

func (w *faultyWork) Source() int { return 99 }
