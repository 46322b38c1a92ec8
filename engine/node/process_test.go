package node

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/engine"
)

// A worker whose message cannot be read is ended at once: it may wait for an answer.
func TestMessageThatCannotBeRead(t *testing.T) {
	ours, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	p := &process{rank: 3, cmd: exec.Command("sleep", "60")}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.channel, err = engine.NewChannel(ours); err != nil {
		t.Fatal(err)
	}
	defer p.channel.Close()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte{0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	events := make(chan event, 10)
	go p.listen(events, func() {})
	next := func() (ev event) {
		select {
		case ev = <-events:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			t.Fatal("nothing happens")
		}
		return ev
	}
	if ev := next(); ev.msg == nil || ev.msg.Failure == nil || !strings.HasPrefix(ev.msg.Failure.Message, "rank 3 sent a message that cannot be read: ") {
		t.Errorf("the first event is %+v", ev)
	}
	if ev := next(); ev.exit == nil || !ev.exit.Killed {
		t.Errorf("the second event is %+v", ev)
	}
}

// A cancellation, or a debugger's message, may be sent to a rank as soon as it is there.
func TestJobIsTheFirstMessage(t *testing.T) {
	job := &engine.Job{Recipe: "train.star"}
	p, err := spawn("/bin/true", 1, job, nil, nil, func(int, bool, string) {})
	if err != nil {
		t.Fatal(err)
	}
	p.send(&engine.ToWorker{Debug: &engine.Debug{}})
	if m := <-p.outbox; m.Job != job {
		t.Errorf("the first message is %+v", m)
	}
	events := make(chan event, 1)
	go p.serve(events, func() {})
	if ev := <-events; ev.exit == nil || !ev.exit.Clean {
		t.Errorf("the end is %+v", ev)
	}
}
