package worker

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"drun/collective/sharedmem"
	"drun/engine"
	"drun/internal/memory"
	"drun/starlib/checkpoint"
)

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
