package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Files are the ranks' output in files, as torchrun writes them: DIR/RUN/attempt_N/RANK/stdout.log and stderr.log, with the
// rank's number in the world. The history has all output in any case.
type Files struct {
	Dir            string  // "": there are no files
	Redirects, Tee Streams // what goes to the files and is not shown, and what goes there and is shown

	mu   sync.Mutex
	open map[int]*rankFiles
}

// rankFiles are a rank's files, of stdout and stderr; nil where its stream goes to none.
type rankFiles struct {
	local int
	files [2]*os.File
}

// Streams says which streams of a local rank are meant: bit 0 is stdout, bit 1 stderr. everyRank stands for ranks that are not
// named.
type Streams map[int]int

const everyRank = -1

// ParseStreams reads torchrun's notation: 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all local ranks, or for some as in
// 0:1,1:3.
func ParseStreams(text string) (Streams, error) {
	out := Streams{}
	for item := range strings.SplitSeq(text, ",") {
		rank, value, named := strings.Cut(item, ":")
		local := everyRank
		if !named {
			value = rank
		} else if n, err := strconv.Atoi(rank); err == nil && n >= 0 {
			local = n
		} else {
			value = ""
		}
		_, twice := out[local]
		if len(value) != 1 || value < "0" || value > "3" || twice || !named && strings.Contains(text, ",") {
			return nil, fmt.Errorf("want 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or some for each local rank as in 0:1,1:3, not %q", text)
		}
		out[local] = int(value[0] - '0')
	}
	return out, nil
}

func (s Streams) has(local, stream int) bool {
	bits, named := s[local]
	if !named {
		bits = s[everyRank]
	}
	return bits>>stream&1 != 0
}

// Begin opens the files of a rank that starts, and closes those of its last attempt.
func (f *Files) Begin(run string, attempt, rank, local int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.close(rank)
	r := &rankFiles{local: local}
	for stream, name := range []string{"stdout.log", "stderr.log"} {
		if f.Dir == "" || !f.Redirects.has(local, stream) && !f.Tee.has(local, stream) {
			continue
		}
		dir := filepath.Join(f.Dir, run, fmt.Sprintf("attempt_%d", attempt), strconv.Itoa(rank))
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			r.files[stream], err = os.Create(filepath.Join(dir, name))
		}
		if err != nil {
			return fmt.Errorf("--log-dir: %w", err)
		}
	}
	if f.open == nil {
		f.open = map[int]*rankFiles{}
	}
	f.open[rank] = r
	return nil
}

func (f *Files) close(rank int) {
	if r := f.open[rank]; r != nil {
		for _, file := range r.files {
			if file != nil {
				_ = file.Close() // what could not be written was told
			}
		}
	}
	delete(f.open, rank)
}

// write puts a line into the rank's file, and reports whether the console shows it too.
func (f *Files) write(rank, stream int, text string) (shown bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.open[rank]
	if r == nil {
		return true, nil
	}
	if file := r.files[stream]; file != nil {
		if _, err = file.WriteString(text + "\n"); err != nil {
			_ = file.Close()
			r.files[stream] = nil // so that it is told once
		}
	}
	return !f.Redirects.has(r.local, stream) || f.Tee.has(r.local, stream), err
}
