package worker

import (
	"context"
	"os"
	"sync"
	"time"

	"drun/engine"
	"drun/engine/rendezvous"
	"drun/history/records"
	"drun/internal/queue"
	"drun/kernel"
	"drun/starlib/run"
)

// recordSize is roughly a record's size in bytes without its text.
const recordSize = 64

// limits say when records are sent, and how many bytes of them a recipe may be ahead of its agent before it waits.
var limits = queue.Limits{After: 50 * time.Millisecond, At: 64 << 10, Full: 4 << 20}

// recorder collects a rank's records and sends them in batches in the background. It is a run.Recorder. A recipe
// that records faster than the agent writes waits, at most until the run is aborted.
type recorder struct {
	channel *engine.Channel
	quiet   bool      // there is no progress bar
	told    time.Time // when progress was last sent, if nobody watches
	queue   *queue.Queue[engine.ToAgent]
	digests *digests   // of the parameters; nil: none are recorded
	sending sync.Mutex // held from taking a batch until it is sent, to keep the order
	done    chan struct{}
}

var _ run.Recorder = (*recorder)(nil)

func newRecorder(ctx context.Context, channel *engine.Channel, quiet bool) *recorder {
	r := &recorder{channel: channel, quiet: quiet, queue: queue.New[engine.ToAgent](limits), done: make(chan struct{})}
	context.AfterFunc(ctx, r.queue.Release)
	go r.loop()
	return r
}

// add waits for room and adds a record to the next batch.
func (r *recorder) add(text int, put func(m *engine.ToAgent)) {
	r.queue.Wait()
	r.queue.Add(recordSize+text, put)
}

func (r *recorder) Log(p records.Point) {
	p.Time = time.Now()
	r.add(len(p.Name), func(m *engine.ToAgent) {
		m.Records.Points = append(m.Records.Points, p)
		r.mark(m, p.Name, p.Step)
	})
}

func (r *recorder) Tag(names []string) {
	for _, name := range names {
		r.add(len(name), func(m *engine.ToAgent) { m.Records.Tags = append(m.Records.Tags, name) })
	}
}

func (r *recorder) Note(n records.Note) {
	n.Time = time.Now()
	r.add(len(n.Text), func(m *engine.ToAgent) { m.Records.Notes = append(m.Records.Notes, n) })
}

func (r *recorder) Artifact(a records.Artifact) {
	a.Time = time.Now()
	r.add(len(a.Name)+len(a.Data), func(m *engine.ToAgent) { m.Records.Artifacts = append(m.Records.Artifacts, a) })
}

// Machine records where the rank runs and with what it computes.
func (r *recorder) Machine(at rendezvous.Placement, kernels string) {
	host, _ := os.Hostname()
	row := records.RankPlace{Node: at.NodeRank, LocalRank: at.LocalRank, Host: host, Threads: kernel.Threads(), Kernels: kernels}
	r.add(len(host)+len(kernels), func(m *engine.ToAgent) { m.Records.Ranks = append(m.Records.Ranks, row) })
}

// Copies records what was copied to a device and back.
func (r *recorder) Copies(list []records.Copies) {
	r.add(recordSize*len(list), func(m *engine.ToAgent) { m.Records.Copies = append(m.Records.Copies, list...) })
}

func (r *recorder) DataFile(f records.DataFile, perRank bool) {
	r.add(len(f.Path)+len(f.SHA256)+len(f.Position), func(m *engine.ToAgent) {
		if m.Records.DataFiles = append(m.Records.DataFiles, f); perRank {
			m.PerRank = append(m.PerRank, f.Path)
		}
	})
}

func (r *recorder) Progress(p records.Progress) {
	if r.quiet && !r.due() { // needed only for the history
		return
	}
	r.queue.Add(0, func(m *engine.ToAgent) { m.Progress = &p })
	r.queue.Flush()
}

const quietEvery = 250 * time.Millisecond

// due reports whether it is time to send progress again. Only the recipe's goroutine calls it.
func (r *recorder) due() bool {
	if time.Since(r.told) < quietEvery {
		return false
	}
	r.told = time.Now()
	return true
}

func (r *recorder) loop() {
	defer close(r.done)
	for range r.queue.Ready() {
		if r.flush() {
			return
		}
	}
}

// flush sends the pending records and reports whether the recorder was closed. An error of the channel means that the
// agent is gone, which ends the worker.
func (r *recorder) flush() (closed bool) {
	r.sending.Lock()
	defer r.sending.Unlock()
	msg, some, closed := r.queue.Take()
	if r.digests != nil {
		msg.Records.Updates = r.digests.taken()
		msg.Replicas = r.digests.worker.replicas.taken()
	}
	if some || msg.Records.Updates != nil || msg.Replicas != nil {
		_ = r.channel.Send(&msg)
	}
	return closed
}

// close sends the rest and ends the recorder.
func (r *recorder) close() {
	r.queue.Close()
	<-r.done
}
