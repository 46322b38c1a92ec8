package transfer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"drun/checkpoints"
	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/build"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// Home is a folder of this machine as a side. Its user is that of the context (see access.Of): who may do nothing gets
// *access.Denied.
type Home struct {
	// Objects keeps the chunks of checkpoints; nil: the home does. It is set before anything is asked for.
	Objects checkpoints.Objects

	path  string
	write bool

	mu    sync.Mutex
	db    *history.DB // for reading
	to    *history.DB // for writing
	store *checkpoints.Store
	live  map[string]*watched
}

// OpenHome opens the home at a path, which for writing is made if it is not there. Without a history the error is
// *history.ErrNone.
func OpenHome(path string, write bool) (_ *Home, err error) {
	defer try.Caught(&err)
	h := &Home{path: path, write: write, live: map[string]*watched{}}
	if write {
		h.to = try.To(history.Open(path))
	}
	defer try.CaughtOr(&err, func() { h.Close() })
	h.db = try.To(history.OpenReadOnly(path))
	return h, nil
}

// Path is the folder.
func (h *Home) Path() string { return h.path }

// Reader and Writer are the history, opened for either. The writer has one connection: what reads for long uses the reader.
func (h *Home) Reader() *history.DB { return h.db }
func (h *Home) Writer() *history.DB { return h.to }

func (h *Home) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, w := range h.live {
		w.end()
	}
	if h.store != nil {
		errs = append(errs, h.store.Close())
	}
	if h.db != nil {
		errs = append(errs, h.db.Close())
	}
	if h.to != nil {
		errs = append(errs, h.to.Close())
	}
	h.store, h.db, h.to = nil, nil, nil
	return errors.Join(errs...)
}

// Local is the context of a home's own user, who may do everything.
func Local(ctx context.Context) context.Context {
	return access.With(ctx, access.User{Grants: []access.Grant{{Role: access.Admin}}}, nil)
}

// checkpoints opens the checkpoints; nil: there are none.
func (h *Home) checkpoints(write bool) (_ *checkpoints.Store, err error) {
	defer try.Caught(&err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil {
		any := try.To(checkpoints.OpenIfAny(h.path))
		if h.store = any; h.write && (any != nil || write) {
			try.Ok(any.Close())
			h.store = nil
			h.store, err = checkpoints.Open(h.path)
		}
		if h.store != nil {
			h.store.Objects = h.Objects
		}
	}
	return h.store, err
}

// may returns the state of a run that the context's user has a role for.
func (h *Home) may(ctx context.Context, role access.Role, uid string) (*history.State, error) {
	found, err := h.db.States([]string{uid})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &history.NotFound{What: "there is no run with the uid " + uid, Near: "it may have been removed"}
	}
	return &found[0], access.Of(ctx).Must(role, found[0].Project)
}

func (h *Home) Hello(ctx context.Context) (Hello, error) {
	return Hello{Version, h.db.Schema(), build.Own(), access.Of(ctx).Name}, nil
}

func (h *Home) Find(ctx context.Context, c Choice) (found []Found, err error) {
	defer try.Caught(&err)
	db := h.db.Within(access.Of(ctx).Within(access.Read))
	var ids []int64
	for _, ref := range c.Refs {
		ids = append(ids, try.To(db.Find(ref)))
	}
	if len(c.Refs) == 0 {
		where, _ := try.To2(query.ParseSelection("--", c.Where, c.Tags, nil))
		ids, _ = try.To2(query.Choose(db, false, where, nil))
	}
	slices.Sort(ids) // a run comes after the one that it was resumed from
	for _, r := range try.To(db.Select(history.Selection{IDs: append([]int64{}, slices.Compact(ids)...)})) {
		found = append(found, Found{r.ID, r.UID, r.Name})
	}
	slices.Reverse(found)
	return found, nil
}

func (h *Home) States(ctx context.Context, uids []string) ([]history.State, error) {
	user := access.Of(ctx)
	all, err := h.db.States(uids)
	return slices.DeleteFunc(all, func(s history.State) bool { return !user.May(access.Read, s.Project) }), err
}

// Extent tells of a run that is here, whoever asks, that it is: else two runs would have the same uid.
func (h *Home) Extent(ctx context.Context, p Part) (k Known, err error) {
	defer try.Caught(&err)
	if k.Extent = try.To(h.db.Extent(p.UID)); k.Extent.ID == 0 {
		return k, nil
	}
	try.Ok(access.Of(ctx).Must(access.Read, k.Extent.Project))
	if p.Points >= 0 {
		k.Digest, err = h.db.Digest(p.UID, p.Points, p.Lines)
	}
	return k, err
}

type homeSource struct {
	home *Home
	from *history.Source
}

func (h *Home) Source(uid string, secrets bool) Source {
	from := h.db.SourceOf(uid)
	from.WithSecrets = secrets
	return &homeSource{h, from}
}

func (s *homeSource) Since(ctx context.Context, have history.Extent) (*history.Delta, error) {
	role := access.Read
	if s.from.WithSecrets {
		role = access.Admin
	}
	if _, err := s.home.may(ctx, role, s.from.UID); err != nil {
		return nil, err
	}
	return s.from.Since(have)
}

// first reads the first of what sums name, up to the most that is answered at once.
func first(sums []string, read func(sum string) ([]byte, error)) (list [][]byte, err error) {
	size := 0
	for _, sum := range sums {
		if size >= mostAnswered {
			break
		}
		data, err := read(sum)
		if err != nil {
			return nil, err
		}
		list, size = append(list, data), size+len(data)
	}
	return list, nil
}

func (h *Home) Contents(ctx context.Context, uid string, sums []string) ([][]byte, error) {
	if _, err := h.may(ctx, access.Read, uid); err != nil {
		return nil, err
	}
	return first(sums, func(sum string) ([]byte, error) { return h.db.Content(&records.Artifact{Name: sum, SHA256: sum}) })
}

func (h *Home) LackingContents(_ context.Context, sums []string) ([]string, error) {
	return h.db.Lacking(sums)
}

func (h *Home) LackingChunks(_ context.Context, sums []string) ([]string, error) {
	store, err := h.checkpoints(false)
	if err != nil {
		return nil, err
	}
	return store.Lacking(sums)
}

// lease is for how long a run that was sent while it went on counts as running, and one whose next part should follow soon.
const (
	lease     = time.Minute
	liveLease = 30 * time.Second
)

func (h *Home) Merge(ctx context.Context, a Arriving) (m Merged, err error) {
	defer try.Caught(&err)
	user, d := access.Of(ctx), a.Delta
	if d == nil {
		return m, &history.Misshapen{Why: "there is none"}
	}
	project, how := d.Project, history.Arrival{Owner: user.Name, Project: a.Project, Lease: lease}
	if a.Live {
		how.Lease = liveLease
	}
	known := try.To(h.db.States([]string{d.UID}))
	if project == "" {
		project = a.Project
	}
	if len(known) > 0 {
		project = known[0].Project
	}
	try.Ok(user.Must(access.Write, project))
	if project != "" {
		try.Ok(history.CheckProject(project))
	}
	m.ID, m.Name = try.To2(h.to.Merge(d, how))
	m.Watched = h.watch(d, a)
	if len(known) == 0 {
		user.Log(access.Event{Action: "enter", Run: m.Name, UID: d.UID, Project: project})
	} else if s := d.Row.Status; s != history.Running && !d.More {
		user.Log(access.Event{Action: "end", Run: m.Name, UID: d.UID, Project: project, What: string(s)})
	}
	return m, nil
}

// watched is what is known of the ranks of a run that goes on elsewhere.
type watched struct {
	mu    sync.Mutex
	doing *records.Snapshot
	asked time.Time
	close func()
	until *time.Timer
}

func (w *watched) end() {
	w.until.Stop()
	if w.close != nil {
		w.close()
	}
}

// watchFor is how long somebody counts as watching after asking what the ranks do.
const watchFor = 10 * time.Second

// watch lets those who ask here what the ranks of the run do get what was heard last, and reports whether somebody has.
func (h *Home) watch(d *history.Delta, a Arriving) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.live[d.UID]
	if !a.Live || d.Row.Status != history.Running {
		if w != nil {
			w.end()
			delete(h.live, d.UID)
		}
		return false
	}
	if w == nil {
		w = &watched{}
		w.close = h.to.AnswerFor(d.UID, func(context.Context) (*records.Snapshot, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = time.Now()
			return w.doing, nil
		})
		w.until = time.AfterFunc(liveLease, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.live[d.UID] == w {
				w.end()
				delete(h.live, d.UID)
			}
		})
		h.live[d.UID] = w
	}
	w.until.Reset(liveLease)
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Doing != nil {
		w.doing = a.Doing
	}
	return time.Since(w.asked) < watchFor
}

func (h *Home) Checkpoints(ctx context.Context, uid string) (list []checkpoints.Manifest, err error) {
	defer try.Caught(&err)
	try.To(h.may(ctx, access.Read, uid))
	store := try.To(h.checkpoints(false))
	for _, info := range try.To(store.List(uid)) {
		m, err := store.Manifest(info)
		if errors.As(err, new(*checkpoints.ErrNone)) {
			continue // it has just been removed
		}
		try.Ok(err)
		m.Ranks = nil
		list = append(list, *m)
	}
	return list, nil
}

func (h *Home) Manifest(ctx context.Context, uid string, step int64) (_ *checkpoints.Manifest, err error) {
	defer try.Caught(&err)
	try.To(h.may(ctx, access.Read, uid))
	store := try.To(h.checkpoints(false))
	return store.Manifest(try.To(store.Find(uid, checkpoints.Step(step))))
}

func (h *Home) Chunks(ctx context.Context, uid string, sums []string) (list [][]byte, err error) {
	defer try.Caught(&err)
	try.To(h.may(ctx, access.Read, uid))
	store := try.To(h.checkpoints(false))
	size := 0
	enough := errors.New("enough")
	err = store.ReadChunks(sums, func(_ string, data []byte) error {
		if size >= mostAnswered {
			return enough
		}
		list, size = append(list, slices.Clone(data)), size+len(data)
		return nil
	})
	if err == enough {
		err = nil
	}
	return list, err
}

func (h *Home) Receive(ctx context.Context, uid string, chunks [][]byte) (err error) {
	defer try.Caught(&err)
	try.To(h.may(ctx, access.Write, uid))
	return try.To(h.checkpoints(true)).Receive(uid, chunks)
}

func (h *Home) Enter(ctx context.Context, m *checkpoints.Manifest) (err error) {
	defer try.Caught(&err)
	if m == nil {
		return &history.Misshapen{Why: "there is no checkpoint"}
	}
	run := try.To(h.may(ctx, access.Write, m.Run))
	store := try.To(h.checkpoints(true))
	there, err := store.Enter(m)
	if checkpoints.IsLacking(err) {
		return &Lacking{m.Step}
	}
	try.Ok(err)
	info := try.To(store.Find(m.Run, checkpoints.Step(m.Step)))
	try.Ok(h.to.ListCheckpoint(run.ID, history.Checkpoint{Step: m.Step, Bytes: info.Bytes, Score: (*records.Float)(m.Score), Time: m.Time, Points: m.Points}))
	if !there {
		access.Of(ctx).Log(access.Event{Action: "checkpoint", Run: run.Name, UID: m.Run, Project: run.Project, What: strconv.FormatInt(m.Step, 10)})
	}
	return store.Arrived(m.Run)
}

// Offload moves the chunks that are in the home to Objects, and removes from there, by remove, those of these that no checkpoint has.
func (h *Home) Offload(unused []string, remove func(sum string) error) error {
	store, err := h.checkpoints(false)
	if store == nil || err != nil {
		return err
	}
	if err := store.Offload(); err != nil {
		return err
	}
	return store.Sweep(unused, remove)
}
