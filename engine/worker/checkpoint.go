package worker

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"drun/collective/sharedmem"
	"drun/engine"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"
	"drun/starlib/checkpoint"

	"github.com/zeebo/xxh3"
)

var _ checkpoint.Store = (*worker)(nil)

// apartFrom is the size in bytes from which a part's data does not travel over the control channel: below it,
// another message costs more than copying the data.
const apartFrom = 1 << 20

// Save hands the rank's part to the agent, which then stores it.
func (w *worker) Save(step int64, score *float64, memory bool, part []checkpoint.Item) error {
	w.debug.Saves(step)
	if w.digests.target != nil {
		if err := w.digests.saving(step, score, part); err != nil {
			return err
		}
	}
	w.replicas.flush()
	w.record.queue.Add(0, func(m *engine.ToAgent) { w.record.mark(m, "", step) })
	return w.save(step, score, memory, part)
}

func (w *worker) save(step int64, score *float64, memory bool, part []checkpoint.Item) (err error) {
	defer try.Caught(&err)
	msg := &engine.Part{Step: step, Score: score, Memory: memory}
	bytes := 0
	for i := range part {
		bytes += len(part[i].Data)
	}
	msg.Apart = bytes >= apartFrom
	for i := range part {
		it := &part[i]
		e := engine.Entry{Name: it.Name, DType: it.DType, Shape: it.Shape}
		if it.Set != "" {
			e.Share = &engine.Share{Set: it.Set, From: int64(it.From), Whole: it.WholeBytes()}
		}
		if !msg.Apart {
			e.Data = it.Data
		} else if e.Bytes = int64(len(it.Data)); w.job.Placement.WorldSize > 1 && e.Share == nil {
			sum := xxh3.Hash128(it.Data).Bytes()
			e.Sum = sum[:]
		}
		msg.Entries = append(msg.Entries, e)
	}
	try.Ok(w.doubt()) // found in this call
	w.record.flush()  // so that what was logged before is also stored before
	reply := try.To(w.ask("saving a checkpoint", &engine.ToAgent{Save: msg}))
	if reply.HandOver != nil {
		w.board.Note("handing over its state")
		handed := w.regions.handOver(reply.HandOver, part)
		w.board.Note("")
		try.Ok(w.channel.Send(&engine.ToAgent{Handed: handed}))
		if handed.Error != "" {
			return exit.Errorf(exit.Storage, "checkpoint of step %d: %s", step, handed.Error)
		}
	}
	if reply.Saved != nil && reply.Saved.Error != "" {
		return exit.Errorf(exit.Storage, "%s", reply.Saved.Error)
	}
	return nil
}

// Restore asks the agent for the rank's part; nil if there is nothing to restore.
func (w *worker) Restore(step string) (*checkpoint.Restored, error) {
	w.record.flush() // so that what was logged before is also known before
	reply, err := w.ask("restoring a checkpoint", &engine.ToAgent{Restore: step})
	if err != nil {
		return nil, err
	}
	state := reply.State
	switch {
	case state == nil:
		return nil, errors.New("the agent sent no checkpoint")
	case state.Error != "":
		return nil, exit.WithHint(exit.Errorf(state.Code, "%s", state.Error), state.Hint)
	case !state.Found:
		return nil, nil
	}
	view, err := viewMemory(state.File, state.Size)
	if err != nil {
		return nil, exit.WithCode(err, exit.Storage)
	}
	out := &checkpoint.Restored{Step: state.Step, Run: state.Run, Score: state.Score, Saved: state.WorldSize, World: w.job.Placement.WorldSize,
		Differ: state.Differ, First: state.First}
	for _, e := range state.Entries {
		it := checkpoint.Item{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data}
		if view != nil && e.Bytes > 0 {
			it.Data, it.Owner = view.Mem[e.Offset:][:e.Bytes:e.Bytes], view
		}
		out.Part = append(out.Part, it)
	}
	for _, e := range state.Cut {
		out.Cut = append(out.Cut, checkpoint.Item{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data})
	}
	if view != nil {
		return out, w.channel.Send(&engine.ToAgent{Taken: true})
	}
	return out, nil
}

// viewMemory maps a memory file of the agent; nil for an empty path.
func viewMemory(path string, size int64) (*sharedmem.View, error) {
	if path == "" {
		return nil, nil
	}
	file, err := openMemory(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return sharedmem.NewView(file, int(size))
}

// Say writes a line to stderr, which the agent shows and keeps.
func (w *worker) Say(line string) { _, _ = os.Stderr.WriteString(line + "\n") }

// regions are the agent's memory files that the rank keeps mapped, the latest last. For checkpoints in memory, one
// is in use while the other is the next.
type regions []mapped

type mapped struct {
	number uint64
	mem    []byte
}

// handOver copies what the agent asks for into its memory.
func (r *regions) handOver(to *engine.HandOver, part []checkpoint.Item) *engine.Handed {
	if len(to.Spans) == 0 {
		return &engine.Handed{}
	}
	file, err := openMemory(to.File)
	if err != nil {
		return &engine.Handed{Error: err.Error()}
	}
	defer file.Close()
	bytes := 0
	for _, s := range to.Spans {
		bytes += len(part[s.Entry].Data)
	}
	if used := memory.Used(); bytes > memory.Limit()-used {
		return &engine.Handed{Error: fmt.Sprintf("cannot copy %d bytes of the state: %d bytes are in use and this rank may use %d of this machine", bytes, used, memory.Limit())}
	}
	if to.Written {
		if mem, err := r.of(file, to); err == nil {
			for _, s := range to.Spans {
				copy(mem[s.Offset:], part[s.Entry].Data)
			}
			return &engine.Handed{}
		}
	}
	for _, s := range to.Spans {
		// Not through a mapping, where a lack of memory would kill the process.
		if _, err := file.WriteAt(part[s.Entry].Data, s.Offset); err != nil {
			return &engine.Handed{Error: fmt.Sprintf("cannot copy %d bytes of the state into memory: %v", bytes, err)}
		}
	}
	return &engine.Handed{}
}

// of gives the mapping of a region that was written before and so already has its memory.
func (r *regions) of(file *os.File, to *engine.HandOver) ([]byte, error) {
	for _, m := range *r {
		if m.number == to.Region && int64(len(m.mem)) >= to.Size {
			return m.mem, nil
		}
	}
	mem, err := sharedmem.Map(file, 0, sharedmem.PageRound(int(to.Size)))
	if err != nil {
		return nil, err
	}
	if *r = append(*r, mapped{to.Region, mem}); len(*r) > 2 {
		_ = sharedmem.Unmap((*r)[0].mem)
		*r = (*r)[1:]
	}
	return mem, nil
}

// openMemory opens a memory file of the agent. The path names a process by its number, which may by now be
// another's: a file that is not drun's is not written to.
func openMemory(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil || !strings.HasPrefix(name, "/memfd:"+engine.StateMemory) {
		file.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not drun's memory", path))
	}
	return file, nil
}
