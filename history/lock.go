package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"

	"golang.org/x/sys/unix"
)

// The agent of a running run holds an exclusive flock on <home>/locks/<id>.lock from before the run becomes visible
// until after its status is final. The kernel releases the lock when the process ends, however it ends, so a
// running run whose lock is free is lost.

func (db *DB) lockPath(id int64) string {
	return filepath.Join(db.home, "locks", strconv.FormatInt(id, 10)+".lock")
}

// Claim claims what a key stands for, such as a cell of a sweep, for this process among all that use the home. release is
// nil if another process has claimed it.
func Claim(home, key string) (release func(), err error) {
	defer try.Caught(&err)
	sum := sha256.Sum256([]byte(key))
	path := filepath.Join(home, "locks", fmt.Sprintf("claim-%x.lock", sum[:8]))
	file := try.To(lockFile(path))
	there, err := os.FileInfo(nil), unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	own, _ := file.Stat()
	if err == nil { // the file may have been removed by its previous holder
		there, err = os.Stat(path)
	}
	if err != nil || !os.SameFile(own, there) {
		file.Close()
		return nil, nil
	}
	return func() {
		dropLock(file)
		file.Close()
	}, nil
}

// lockFile opens a file for a lock, and makes it if it is missing.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, sqldb.Wrap(filepath.Dir(path), err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	return file, sqldb.Wrap(path, err)
}

func (db *DB) lockRun(id int64) (_ *os.File, err error) {
	defer try.Caught(&err)
	path := db.lockPath(id)
	file := try.To(lockFile(path))
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, exit.WithHint(&sqldb.Error{Path: path, What: "could not be locked", Err: err},
			"the home folder must be on a file system with file locks")
	}
	// If the file system does not support this, a run on a full disk will be found lost.
	_ = unix.Fallocate(int(file.Fd()), 0, 0, reserve)
	return file, nil
}

// dropLock releases a lock, and removes its file if it is still the same one.
func dropLock(lock *os.File) {
	if there, err := os.Stat(lock.Name()); err == nil {
		if own, err := lock.Stat(); err == nil && os.SameFile(own, there) {
			os.Remove(lock.Name())
		}
	}
	lock.Close()
}

// reserve is how many bytes of the disk a run keeps for the record of its end.
const reserve = 64 << 10

// giveReserve frees that space, and reports whether there was any.
func (r *Run) giveReserve() bool {
	info, err := r.lock.Stat()
	return err == nil && info.Size() > 0 && r.lock.Truncate(0) == nil
}

// A run that is led from elsewhere has a lease instead, which what arrives of it prolongs (see Merge): it is lost once the
// lease has ended.

// agentGone reports whether no living agent holds the run's lock. Readers ask with a shared lock, so that they never
// disturb each other.
func (db *DB) agentGone(id int64) bool {
	file, err := os.Open(db.lockPath(id))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // not readable, so unknown
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

// findLost lists the runs that claim to be running although their agent is gone. It reads the status again after
// finding the lock free, since the agent may have finished in between.
func (db *DB) findLost() (_ []int64, err error) {
	defer try.Caught(&err)
	claim := try.To(db.running())
	gone := []int64{}
	for _, r := range claim {
		if db.leaderGone(r) {
			gone = append(gone, r.id)
		}
	}
	if len(gone) == 0 {
		return gone, nil
	}
	still := try.To(db.running())
	return slices.DeleteFunc(gone, func(id int64) bool {
		return !slices.ContainsFunc(still, func(r runningRun) bool { return r.id == id && db.leaderGone(r) })
	}), nil
}

type runningRun struct {
	id     int64
	leased *time.Time // nil: its agent has a lock
}

// leased is the end of a run's lease. That of a run whose job is followed from here has none: the job's end is that of the run.
const leased = "CASE WHEN leased IS NOT NULL AND EXISTS (SELECT 1 FROM jobs WHERE run = runs.id AND ended IS NULL) THEN '9999-01-01T00:00:00.000000Z' ELSE leased END"

func (db *DB) leaderGone(r runningRun) bool {
	if r.leased != nil {
		return r.leased.Before(time.Now())
	}
	return db.agentGone(r.id)
}

func (db *DB) running() ([]runningRun, error) {
	return list(db, func(r *runningRun) []any { return []any{&r.id, timeOrNone{&r.leased}} }, "SELECT id, "+leased+" FROM runs WHERE status = 'running'")
}

// markLost sets the status of lost runs. It runs an update even if there are none, since only then does SQLite
// report that the file cannot be written.
func (db *DB) markLost() (err error) {
	defer try.Caught(&err)
	lost := try.To(db.findLost())
	set := sqldb.JSON(lost)
	return db.write(func(tx *sql.Tx) (err error) {
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
			var uid string
			err := rows.Scan(&uid)
			for _, suffix := range []string{"", debugSuffix, askSuffix, toldSuffix} {
				os.Remove(db.livePath(uid) + suffix)
			}
			return err
		}, "SELECT uid FROM runs WHERE status = 'running' AND id IN (SELECT value FROM json_each(?))", set))
		for _, table := range []string{"runs SET status = 'lost' WHERE id", "attempts SET status = 'lost' WHERE run"} {
			try.To(tx.Exec("UPDATE "+table+" IN (SELECT value FROM json_each(?)) AND status = 'running'", set))
		}
		for _, id := range lost {
			os.Remove(db.lockPath(id))
		}
		return nil
	})
}

// settle marks a run as lost if its agent has just been killed. A process that the agent was forking keeps the lock until
// it executes its own program, which takes a moment on a busy machine.
func (db *DB) settle(id int64) error {
	var host string
	var pid int
	err := db.read(func(rows *sql.Rows) error { return rows.Scan(&host, &pid) }, "SELECT host, pid FROM runs WHERE id = ? AND status = 'running'", id)
	if own, _ := os.Hostname(); err != nil || host != own {
		return err
	}
	for end := time.Now().Add(5 * time.Second); errors.Is(unix.Kill(pid, 0), unix.ESRCH) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if db.agentGone(id) {
			return db.markLost()
		}
	}
	return nil
}

// While a run goes on, its agent tells whoever connects to the socket <home>/locks/<uid>.sock what the ranks do at
// that moment, as one liveAnswer in JSON. Only the agent's user can open the socket. Nothing is done unless
// somebody asks, and requests within liveFor of each other get the same answer.

const (
	liveVersion = 1
	liveFor     = 200 * time.Millisecond // for how long an answer is current
	liveWithin  = 2 * time.Second        // for an agent to answer
	liveAtOnce  = 16                     // requests being answered; further ones are turned away
	liveBytes   = 64 << 20               // the largest answer
)

type liveAnswer struct {
	Version  int               `json:"version"`
	Snapshot *records.Snapshot `json:"snapshot"` // null: the ranks have not started, or have ended
}

func (db *DB) livePath(uid string) string { return filepath.Join(db.home, "locks", uid+".sock") }

// live is the socket of a run.
type live struct {
	listener *net.UnixListener
	path     string
	file     os.FileInfo
	now      func(context.Context) (*records.Snapshot, error)
	slots    chan struct{}
	stop     func() // ends what looks for questions in a file

	mu    sync.Mutex
	text  []byte // the latest answer
	taken time.Time
}

// Answer lets the agent tell those who ask (see Doing) what its ranks do, until the run's lock is released. now is
// called from separate goroutines, and returns nil if there are no ranks at the moment; if it fails, those who ask
// get no answer. The run goes on even if there can be no socket, as on some file systems.
func (r *Run) Answer(now func(context.Context) (*records.Snapshot, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = listen(r.db.livePath(r.UID), now)
}

// AnswerFor is Answer for a run that is led from elsewhere, until close is called; close is nil if there can be no socket.
func (db *DB) AnswerFor(uid string, now func(context.Context) (*records.Snapshot, error)) (close func()) {
	path := db.livePath(uid)
	_ = os.MkdirAll(filepath.Dir(path), sqldb.FolderMode) // else there is no socket
	if l := listen(path, now); l != nil {
		return l.close
	}
	return nil
}

func listen(path string, now func(context.Context) (*records.Snapshot, error)) *live {
	listener, err := socket(path)
	if err != nil {
		return nil
	}
	l := &live{listener: listener, path: path, now: now, slots: make(chan struct{}, liveAtOnce)}
	if l.file, err = os.Lstat(path); err != nil {
		listener.Close()
		return nil
	}
	go accept(listener, l.serve)
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	for _, suffix := range []string{askSuffix, toldSuffix} {
		_ = os.WriteFile(path+suffix, nil, 0o600) // else it can be asked on this machine alone
	}
	go l.hear(ctx.Done())
	return l
}

// socket listens at a path, for this user alone.
func socket(path string) (l *net.UnixListener, err error) {
	defer try.Caught(&err)
	os.Remove(path) // left by an agent that is gone, since this one has the lock
	try.Ok(shortly(path, func(short string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	}))
	l.SetUnlinkOnClose(false) // it would use the short name
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// shortly calls fn with a short name for a socket: the kernel accepts only names shorter than paths may be.
func shortly(path string, fn func(short string) error) (err error) {
	defer try.Caught(&err)
	dir := try.To(unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	defer unix.Close(dir)
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)))
}

// accept passes on each connection, until the listener is closed.
func accept(l net.Listener, come func(net.Conn)) {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			come(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as when file descriptors have run out
			time.Sleep(liveFor)
		}
	}
}

func (l *live) serve(conn net.Conn) {
	select {
	case l.slots <- struct{}{}:
		go func() {
			defer func() { <-l.slots }()
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * liveWithin))
			_, _ = conn.Write(l.answer())
		}()
	default:
		conn.Close()
	}
}

func (l *live) answer() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.taken) < liveFor {
		return l.text
	}
	ctx, cancel := context.WithTimeout(context.Background(), liveWithin)
	defer cancel()
	s, err := l.now(ctx)
	l.text, l.taken = nil, time.Now()
	if err == nil {
		l.text, _ = json.Marshal(liveAnswer{liveVersion, s}) // plain data: it cannot fail
	}
	return l.text
}

// gone reports whether the socket has lost its name, such as when its folder was removed.
func (l *live) gone() bool {
	there, err := os.Lstat(l.path)
	return err != nil || !os.SameFile(there, l.file)
}

// close ends the answers and removes the socket.
func (l *live) close() {
	if !l.gone() {
		os.Remove(l.path)
		os.Remove(l.path + askSuffix)
		os.Remove(l.path + toldSuffix)
	}
	l.stop()
	l.listener.Close()
}

// SilentError says why it is not known what the ranks of a run are doing.
type SilentError struct{ Why, Do string }

func (e *SilentError) Error() string { return e.Why }
func (e *SilentError) Hint() string  { return e.Do }

// distant is the error of an agent on another machine.
type distant struct {
	*SilentError
	socket string // its path
}

func (d *distant) Unwrap() error { return d.SilentError }

// Doing asks the agent of a running run what its ranks do now; nil: they have not started, or have ended. The error
// is a *SilentError if the agent cannot be asked: it is gone, stopped, or on another machine.
func (db *DB) Doing(ctx context.Context, id int64) (*records.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, liveWithin+time.Second)
	defer cancel()
	conn, pid, err := db.callAgent(ctx, id, "")
	var text []byte
	if far := (*distant)(nil); errors.As(err, &far) {
		if text, err = askFile(ctx, far.socket); err != nil {
			return nil, far.SilentError
		}
	} else if err == nil {
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		text, err = io.ReadAll(io.LimitReader(conn, liveBytes))
	} else {
		return nil, err
	}
	var a liveAnswer
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	switch {
	case err == nil && a.Version != liveVersion:
		return nil, &SilentError{"the run belongs to another version of drun", "use the drun that runs it"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &SilentError{fmt.Sprintf("process %d, which leads the run, does not answer: is it stopped?", pid), fmt.Sprintf("if so, kill -CONT %d lets it go on", pid)}
	case err != nil:
		return nil, &SilentError{fmt.Sprintf("process %d, which leads the run, has not answered: it may have ended, or many ask at once", pid), "ask again"}
	}
	return a.Snapshot, nil
}

// callAgent connects to the agent of a running run, whose process has the number pid on its machine, at its socket or at the
// one with a suffix.
func (db *DB) callAgent(ctx context.Context, id int64, suffix string) (conn net.Conn, pid int, err error) {
	defer try.Caught(&err)
	var uid, host string
	try.Ok(db.read(func(rows *sql.Rows) error { return rows.Scan(&uid, &host, &pid) }, "SELECT uid, host, pid FROM runs WHERE id = ?", id))
	if uid == "" {
		return nil, 0, db.unknown(fmt.Sprint(id))
	}
	err = shortly(db.livePath(uid)+suffix, func(short string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", short)
		return err
	})
	if err == nil {
		return conn, pid, nil
	}
	own, _ := os.Hostname()
	quit := fmt.Sprintf("kill -QUIT %d has the run record what its ranks are doing", pid)
	switch {
	case host != own:
		return nil, 0, &distant{&SilentError{fmt.Sprintf("the run goes on at %s, and its ranks can be asked only there", host), "start drun ui there; " + quit}, db.livePath(uid)}
	case errors.Is(err, os.ErrPermission):
		return nil, 0, &SilentError{"the run belongs to another user, and only that user can ask its ranks", "start drun ui as that user"}
	}
	return nil, 0, &SilentError{fmt.Sprintf("process %d, which leads the run, cannot be asked: %v", pid, reason(err)), quit}
}

// reason is an error without the names that shortly makes up.
func reason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return err
}
