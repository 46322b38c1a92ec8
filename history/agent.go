package history

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/try"
)

// Agent is the process that leads a running run: this very process, even if its number is used again.
type Agent struct{ pidfd int }

// Agent finds the process that leads a running run. The error is like that of Doing.
func (db *DB) Agent(ctx context.Context, id int64) (_ *Agent, err error) {
	defer try.Caught(&err)
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	hosts := try.To(listColumn[string](db, "SELECT host FROM runs WHERE id = ? AND leased IS NOT NULL", id))
	if len(hosts) > 0 { // the socket is that of the server that hears of it
		return nil, &SilentError{"the run goes on at " + hosts[0], "drun stop there"}
	}
	conn, _ := try.To2(db.callAgent(ctx, id, ""))
	defer conn.Close()
	var peer *unix.Ucred
	raw := try.To(conn.(*net.UnixConn).SyscallConn())
	try.Ok(errors.Join(raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }), err))
	fd := try.To(unix.PidfdOpen(int(peer.Pid), 0)) // fails for a process of another PID namespace, which has no number here
	try.Ok(conn.(*net.UnixConn).SetReadDeadline(time.Now().Add(liveWithin)))
	if _, err = conn.Read(make([]byte, 1)); err != nil { // once it answers, the number was its own
		unix.Close(fd)
		return nil, &SilentError{fmt.Sprintf("process %d, which leads the run, does not answer: is it stopped?", peer.Pid), fmt.Sprintf("if so, kill -CONT %d lets it go on", peer.Pid)}
	}
	return &Agent{fd}, nil
}

// Terminate sends SIGTERM.
func (a *Agent) Terminate() error {
	if err := unix.PidfdSendSignal(a.pidfd, unix.SIGTERM, nil, 0); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Wait waits until the process has ended.
func (a *Agent) Wait(ctx context.Context) error {
	const look = 200 // milliseconds
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(a.pidfd), Events: unix.POLLIN}}, look)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}

func (a *Agent) Close() error { return unix.Close(a.pidfd) }
