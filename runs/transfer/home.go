package transfer

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
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
	"drun/runs/serve/objects"
)

// Home is a folder of this machine as a side. Its user is that of the context (see access.Of): who may do nothing gets
// *access.Denied.
type Home struct {
	// Objects keeps the chunks of checkpoints; nil: the home does. Kept has the files of MLflow's clients and, with Objects, those that
	// recipes wrote. Both are set before anything is asked for.
	Objects checkpoints.Objects
	Kept    objects.Store
	// Closed is called once all is closed.
	Closed func()

	path  string
	write bool

	mu       sync.Mutex
	db       *history.DB // for reading
	to       *history.DB // for writing
	store    *checkpoints.Store
	live     map[string]*watched
	arriving sync.Mutex // held while a part of a file is added
}

// OpenHome opens the home at a path, which for writing is made if it is not there. Without a history the error is
// *history.ErrNone.
func OpenHome(path string, write bool) (_ *Home, err error) {
	defer try.Caught(&err)
	h := &Home{path: path, write: write, live: map[string]*watched{}, Kept: objects.In(path), Closed: func() {}}
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
	h.Closed()
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

// Ask carries a request out.
func (h *Home) Ask(ctx context.Context, name string, in, out any) error {
	result, err := requests[name].do(ctx, h, in)
	if err == nil {
		reflect.ValueOf(out).Elem().Set(reflect.ValueOf(result))
	}
	return err
}

func (h *Home) hello(ctx context.Context, _ struct{}) (Hello, error) {
	return Hello{Version, h.db.Schema(), build.Own(), access.Of(ctx).Name}, nil
}

func (h *Home) find(ctx context.Context, c Choice) (found []Found, err error) {
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

func (h *Home) states(ctx context.Context, uids []string) (list []State, err error) {
	for _, s := range try.To(h.db.States(uids)) {
		if access.Of(ctx).May(access.Read, s.Project) {
			_, none := os.Stat(h.outputs(s.ID))
			list = append(list, State{s, s.Foreign || none == nil})
		}
	}
	return list, nil
}

func (h *Home) extent(ctx context.Context, p Part) (k Known, err error) {
	if k.Extent = try.To(h.db.Extent(p.UID)); k.Extent.ID == 0 {
		return k, nil
	}
	try.Ok(access.Of(ctx).Must(access.Read, k.Extent.Project)) // not "there is none": else two runs would have the same uid
	if p.Points >= 0 {
		k.Digest, err = h.db.Digest(p.UID, p.Points, p.Lines)
	}
	return k, err
}

func (h *Home) since(ctx context.Context, l Lacks) (*history.Delta, error) {
	role := access.Read
	if l.Secrets {
		role = access.Admin
	}
	try.To(h.may(ctx, role, l.UID))
	return h.sourceOf(l).Since(l.Have)
}

// sourceOf is a source that remembers what was taken before.
func (h *Home) sourceOf(l Lacks) *history.Source {
	source := h.db.SourceOf(l.UID)
	source.WithSecrets = l.Secrets
	return source
}

func (h *Home) contents(ctx context.Context, s Sums) (list [][]byte, err error) {
	try.To(h.may(ctx, access.Read, s.UID))
	for size := 0; len(list) < len(s.Sums) && size < mostAnswered; size += len(list[len(list)-1]) {
		sum := s.Sums[len(list)]
		list = append(list, try.To(h.db.Content(&records.Artifact{Name: sum, SHA256: sum})))
	}
	return list, nil
}

func (h *Home) lackingContents(_ context.Context, sums []string) ([]string, error) {
	return h.db.Lacking(sums)
}

func (h *Home) lackingChunks(_ context.Context, sums []string) ([]string, error) {
	return try.To(h.checkpoints(false)).Lacking(sums)
}

// lease is for how long a run that was sent while it went on counts as running, and one whose next part should follow soon.
const (
	lease     = time.Minute
	liveLease = 30 * time.Second
)

func (h *Home) merge(ctx context.Context, a Arriving) (m Merged, err error) {
	user, d := access.Of(ctx), a.Delta
	if d == nil {
		return m, &history.Misshapen{Why: "there is none"}
	}
	project, how := d.Project, history.Arrival{Owner: user.Name, Project: a.Project, Lease: lease, Again: a.Again}
	if a.Live {
		how.Lease = liveLease
	}
	known := try.To(h.db.States([]string{d.UID}))
	project = cmp.Or(project, a.Project)
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

func (h *Home) checkpointsOf(ctx context.Context, uid string) (list []checkpoints.Manifest, err error) {
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

func (h *Home) doing(ctx context.Context, uid string) (*records.Snapshot, error) {
	return h.db.Doing(ctx, try.To(h.may(ctx, access.Read, uid)).ID)
}

func (h *Home) manifest(ctx context.Context, s Step) (*checkpoints.Manifest, error) {
	try.To(h.may(ctx, access.Read, s.UID))
	store := try.To(h.checkpoints(false))
	return store.Manifest(try.To(store.Find(s.UID, checkpoints.Step(s.Step))))
}

func (h *Home) chunks(ctx context.Context, s Sums) (list [][]byte, err error) {
	try.To(h.may(ctx, access.Read, s.UID))
	store := try.To(h.checkpoints(false))
	size := 0
	enough := errors.New("enough")
	err = store.ReadChunks(s.Sums, func(_ string, data []byte) error {
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

func (h *Home) receive(ctx context.Context, p Parts) (struct{}, error) {
	try.To(h.may(ctx, access.Write, p.UID))
	return struct{}{}, try.To(h.checkpoints(true)).Receive(p.UID, p.Chunks)
}

func (h *Home) enter(ctx context.Context, m *checkpoints.Manifest) (none struct{}, err error) {
	if m == nil {
		return none, &history.Misshapen{Why: "there is no checkpoint"}
	}
	run := try.To(h.may(ctx, access.Write, m.Run))
	store := try.To(h.checkpoints(true))
	there, err := store.Enter(m)
	if checkpoints.IsLacking(err) {
		return none, &Lacking{m.Step}
	}
	try.Ok(err)
	info := try.To(store.Find(m.Run, checkpoints.Step(m.Step)))
	try.Ok(h.to.ListCheckpoint(run.ID, history.Checkpoint{Step: m.Step, Bytes: info.Bytes, Score: (*records.Float)(m.Score), Time: m.Time, Points: m.Points}))
	if !there {
		access.Of(ctx).Log(access.Event{Action: "checkpoint", Run: run.Name, UID: m.Run, Project: run.Project, What: strconv.FormatInt(m.Step, 10)})
	}
	return none, store.Arrived(m.Run)
}

// Forget removes what was kept before a time for checkpoints and files that have not come since.
func (h *Home) Forget(before time.Time) (err error) {
	defer try.Caught(&err)
	parts, _ := filepath.Glob(filepath.Join(h.path, incoming, "*"))
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && info.ModTime().Before(before) {
			try.Ok(os.Remove(part))
		}
	}
	if store := try.To(h.checkpoints(false)); store != nil {
		return store.Forget(before)
	}
	return nil
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
