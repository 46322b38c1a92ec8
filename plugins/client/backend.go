// Package client starts a plugin and makes it a [collective.Backend]: control requests go through go-plugin's gRPC,
// calls through the arena. cmd/drun-plugin-host links it, with everything that gRPC needs; cmd/drun does not, so that
// runs without plugins start as fast as ever.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/collective"
	"drun/collective/progress"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/plugins/host"
	"drun/plugins/internal/wire"
)

// Backend is a backend served by a plugin: each Open starts a process, which ends with the world's Comm.
type Backend struct {
	Plugin *host.Plugin
	Stderr io.Writer // gets what the plugin writes there, each line after its name
	// OnDeath is called, from any goroutine, when the process has ended without being told to. It may be nil.
	OnDeath func(error)
}

var _ collective.Backend = (*Backend)(nil)

func (b *Backend) Name() string { return b.Plugin.Name }

func (b *Backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	x, err := start(ctx, b.Plugin, world, wire.DescribeRequest{}, b.Stderr, b.OnDeath)
	if err != nil {
		return nil, err
	}
	comm, err := b.join(ctx, x, world)
	if err != nil {
		x.kill()
		x.release()
		return nil, err
	}
	return comm, nil
}

func (b *Backend) join(ctx context.Context, x *process, world collective.World) (*Comm, error) {
	if x.about.Problem != "" {
		return nil, exit.Permanent(fmt.Errorf("it cannot run here: %s", x.about.Problem))
	}
	c := newComm(newPort(x, world), 0, world.Rank, world.Size)
	opened, err := c.ask(ctx, func(ctx context.Context) (*wire.Opened, error) {
		return wire.Open.Ask(ctx, x.control, &wire.OpenRequest{Rank: world.Rank, Size: world.Size,
			LocalRank: world.LocalRank, LocalSize: world.LocalSize, Store: world.Store != nil,
			Deterministic: world.Deterministic, NodeAddress: world.NodeAddress})
	})
	switch {
	case errors.Is(err, collective.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the plugin did not join the world in time, and was killed%s", x.lastWords())
	case err != nil:
		return nil, err
	}
	return c, c.matches(opened)
}

// About is what a plugin says about itself.
type About struct {
	Version string `json:"version"`
	Problem string `json:"problem"` // why it cannot run here; "" if it can
}

// Probe starts the plugin briefly to ask it about itself.
func Probe(ctx context.Context, p *host.Plugin) (About, error) {
	about, err := ask(ctx, p, wire.DescribeRequest{})
	return About{Version: about.Version, Problem: about.Problem}, err
}

// Properties starts the plugin briefly to ask for its properties.
func Properties(ctx context.Context, p *host.Plugin) (collective.Properties, error) {
	about, err := ask(ctx, p, wire.DescribeRequest{NoProbe: true})
	return about.Properties, err
}

func ask(ctx context.Context, p *host.Plugin, what wire.DescribeRequest) (wire.Description, error) {
	x, err := start(ctx, p, collective.World{}, what, io.Discard, nil)
	if err != nil {
		return wire.Description{}, err
	}
	about := *x.about
	x.shut()
	x.release()
	return about, nil
}

// Comm is a group whose calls a plugin carries out.
type Comm struct {
	*port
	number     uint32 // of the plugin's Comm
	rank, size int
	sync       *pluginCall // the synchronous call under way, or one to use again
	end        progress.End
	abort      sync.Once
}

var (
	_ collective.Comm  = (*Comm)(nil)
	_ collective.Arena = (*Comm)(nil)
)

func newComm(p *port, number uint32, rank, size int) *Comm {
	c := &Comm{port: p, number: number, rank: rank, size: size, end: progress.End{Ended: make(chan struct{})}}
	c.sync = &pluginCall{c: c}
	return c
}

func (c *Comm) Rank() int { return c.rank }

func (c *Comm) Size() int { return c.size }

func (c *Comm) Version() string { return c.about.Version }

// failed returns why no call is possible any more, or nil.
func (c *Comm) failed() error {
	if err := c.dead.Load(); err != nil {
		return *err
	}
	return c.end.Cause()
}

// fail makes err the end of this group, unless it has ended before.
func (c *Comm) fail(err error) {
	if c.enter() {
		defer c.mapping.RUnlock()
		c.finish(err)
	}
}

// finish is fail for a caller that has called enter.
func (c *Comm) finish(err error) {
	if c.end.Fail(err) {
		c.arena.WakeAll()
	}
}

// Alloc returns zeroed memory that the plugin has mapped too.
func (c *Comm) Alloc(dt dtype.Type, count int) (collective.Buffer, error) {
	if !dt.Valid() || count < 0 || count > len(c.arena.Mem)/dt.Size() {
		return collective.Buffer{}, fmt.Errorf("cannot allocate %d elements of %v in the arena", count, dt)
	}
	if !c.enter() {
		return collective.Buffer{}, c.failed()
	}
	defer c.mapping.RUnlock()
	span, err := c.memory.get(int64(count * dt.Size()))
	if err != nil {
		return collective.Buffer{}, err
	}
	data := c.at(span)
	clear(data)
	return collective.Buffer{DType: dt, Data: data}, nil
}

// ask makes a control request that ends with ctx or with the group.
func (c *Comm) ask(ctx context.Context, request func(context.Context) (*wire.Opened, error)) (*wire.Opened, error) {
	inner, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var reply *wire.Opened
	whole := collective.Also(ctx, c.failed)
	whole.Wake = c.end.Ended
	early, err := collective.Run(whole, func() (err error) {
		reply, err = request(inner)
		return err
	})
	if early {
		return nil, err
	}
	if err != nil {
		for end := time.Now().Add(time.Second); c.failed() == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // the process's end, which says more, may only be noticed now
		}
		if cause := c.failed(); cause != nil {
			return nil, cause
		}
		return nil, c.broken(err.Error())
	}
	if f := reply.Failure; f != nil {
		return nil, wire.Decode(f.Status, f.Text, collective.NewGroup, c.plugin.Name, c.port.rank)
	}
	return reply, nil
}

func (p *port) broken(msg string) error {
	return &collective.BackendError{Backend: p.plugin.Name, Rank: p.rank, Msg: msg, Own: true}
}

// matches checks that the plugin's Comm is the one that was asked for.
func (c *Comm) matches(o *wire.Opened) error {
	if o.None || o.Rank != c.rank || o.Size != c.size {
		return c.broken(fmt.Sprintf("asked to be rank %d of %d, it says that it is rank %d of %d", c.rank, c.size, o.Rank, o.Size))
	}
	return nil
}

func (c *Comm) Split(ctx context.Context, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	try.Ok(c.failed())
	q := &wire.SplitRequest{Comm: c.number, ID: group.ID, Ranks: group.Ranks}
	opened := try.To(c.ask(ctx, func(ctx context.Context) (*wire.Opened, error) { return wire.Split.Ask(ctx, c.control, q) }))
	rank := slices.Index(group.Ranks, c.rank)
	if rank < 0 {
		if !opened.None {
			return nil, c.broken(fmt.Sprintf("it made rank %d a member of the group of %s", c.rank, collective.RankList(group.Ranks)))
		}
		return nil, nil
	}
	sub := newComm(c.port, opened.Comm, rank, len(group.Ranks))
	return sub, sub.matches(opened)
}

// Abort ends the group's calls, here at once and in the plugin as soon as it can. A plugin in which they continue is
// killed.
func (c *Comm) Abort(cause error) {
	c.fail(cause)
	c.abort.Do(func() {
		if !c.enter() {
			return // the plugin has ended, and its calls with it
		}
		c.aborting.Add(1)
		c.mapping.RUnlock()
		go func() {
			defer c.aborting.Done()
			ctx, stop := context.WithTimeout(c.ctx, abortLimit)
			defer stop()
			end := time.Now().Add(abortLimit)
			_, err := wire.Abort.Ask(ctx, c.control, &wire.AbortRequest{Comm: c.number, Cause: cause.Error()})
			// A request fails at once if the plugin is gone: then watch says how it ended.
			for (err != nil || c.underWay(c.number) != "") && time.Now().Before(end) && c.ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			if c.ctx.Err() != nil || c.closing.Load() {
				return // it ends, or has ended
			}
			if doing := c.underWay(c.number); doing != "" {
				c.condemn(fmt.Sprintf("it did not end its %s within %v of being told to, and was killed", doing, abortLimit))
			} else if err != nil {
				c.condemn(fmt.Sprintf("it did not answer within %v when told to abort, and was killed", abortLimit))
			}
		}()
	})
}

// Close ends the group's calls and releases what it holds; for the world it ends the plugin's process too.
func (c *Comm) Close() error {
	return c.end.Close(func() error {
		c.fail(collective.ErrClosed)
		err := c.closeGroup(c.number)
		if c.number == 0 {
			c.port.close()
		}
		return err
	})
}

func (p *port) closeGroup(number uint32) error {
	if p.dead.Load() != nil {
		return nil // its end has been reported
	}
	ctx, stop := context.WithTimeout(p.ctx, closeLimit)
	defer stop()
	done, err := wire.Close.Ask(ctx, p.control, &wire.CommRequest{Comm: number})
	switch {
	case p.dead.Load() != nil:
		return nil
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		msg := fmt.Sprintf("it did not close its group within %v, and was killed", closeLimit)
		if doing := p.underWay(number); doing != "" {
			msg = fmt.Sprintf("it did not end its %s within %v when its group was closed, and was killed", doing, closeLimit)
		}
		p.condemn(msg)
		return p.broken(msg)
	case err != nil:
		return p.broken(err.Error())
	case done.Failure != nil:
		return wire.Decode(done.Failure.Status, done.Failure.Text, collective.NoKind, p.plugin.Name, p.rank)
	}
	return nil
}

// Statistics counts what the group has done: calls, bytes and microseconds by kind of call, and what the engine counts
// itself. nil if the plugin is gone.
func (c *Comm) Statistics() map[string]int64 {
	ctx, stop := context.WithTimeout(c.ctx, closeLimit)
	defer stop()
	counts, err := wire.Statistics.Ask(ctx, c.control, &wire.CommRequest{Comm: c.number})
	if err != nil {
		return nil
	}
	return counts.Counts
}

// words takes what a plugin writes to stderr, line by line, and passes it on under the plugin's name.
type words struct {
	prefix string
	out    io.Writer

	mu   sync.Mutex
	part []byte // of a line that has not ended
	last []string
}

const (
	keptLines = 20 // for the message when the plugin dies
	lineBytes = 4096
)

func newWords(name string, out io.Writer) *words { return &words{prefix: name + ": ", out: out} }

func (x *words) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		rest, end := p, bytes.IndexByte(p, '\n')
		if end >= 0 {
			rest = p[:end]
		}
		x.mu.Lock()
		x.part = append(x.part, rest[:min(len(rest), max(0, lineBytes-len(x.part)))]...)
		x.mu.Unlock()
		if end < 0 {
			break
		}
		x.line()
		p = p[end+1:]
	}
	return n, nil
}

// line passes on the line that has ended.
func (x *words) line() {
	x.mu.Lock()
	text := strings.ToValidUTF8(strings.TrimRight(string(x.part), "\r"), "\ufffd")
	x.part = x.part[:0]
	if strings.TrimSpace(text) == "" {
		x.mu.Unlock()
		return
	}
	if x.last = append(x.last, text); len(x.last) > keptLines {
		x.last = x.last[1:]
	}
	x.mu.Unlock()
	_, _ = fmt.Fprintf(x.out, "%s%s\n", x.prefix, text) // an error cannot be reported here
}

// latest returns the plugin's last words: from the first line of a panic on, if there was one, else the last few lines.
func (x *words) latest() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	lines := x.last
	if len(x.part) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(x.part))
	}
	const few = 3
	for i, line := range lines {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.Join(lines[i:min(len(lines), i+few)], "; ")
		}
	}
	return strings.Join(lines[max(0, len(lines)-few):], "; ")
}
