package checkpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The system calls at which a process is killed: all that change a file or its name,
// or make that durable.
const boundaries = "openat,mkdirat,write,pwrite64,writev,fsync,fdatasync,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat"

func init() {
	if os.Getenv("DRUN_TEST_WALK") != "" {
		runtime.LockOSThread() // strace counts the calls of each thread
	}
}

// change is what the walk does to a store, one after the other. Each is atomic.
type change struct {
	do   func(s *Store) error
	want map[int64]uint64 // the checkpoints afterwards: step, and what it was saved from
}

// walkPart goes into a pack the first time, and that of seed 3; into the catalog otherwise.
func walkPart(seed uint64) map[int][]Entry {
	fixed, rows := Entry{Name: "fixed", Data: noise(99, large)}, 100
	if seed == 3 {
		rows = 700
	}
	return map[int][]Entry{
		0: {fixed, {Name: "w", Kind: "tensor", DType: "float32", Shape: []int{rows, 50}, Data: noise(seed, rows*200)}},
		1: {fixed, {Name: "w", Kind: "tensor", DType: "float32", Shape: []int{rows, 50}, Data: noise(seed+1000, rows*200)}},
	}
}

func changes() []change {
	save := func(step int64, seed uint64) func(*Store) error {
		return func(s *Store) error {
			_, err := s.Save("r", step, nil, walkPart(seed))
			return err
		}
	}
	return []change{
		{func(*Store) error { return nil }, map[int64]uint64{1: 1, 2: 2}}, // as it was before
		{save(3, 3), map[int64]uint64{1: 1, 2: 2, 3: 3}},
		{func(s *Store) error { _, err := s.Keep("r", 2); return err }, map[int64]uint64{2: 2, 3: 3}},
		{save(3, 4), map[int64]uint64{2: 2, 3: 4}}, // a step that is saved twice
		{func(s *Store) error { _, err := s.Free(); return err }, map[int64]uint64{2: 2, 3: 4}},
		{func(s *Store) error {
			if err := remove(s, "r", 2); !errors.As(err, new(*ErrNone)) {
				return err
			}
			return nil
		}, map[int64]uint64{3: 4}},
		{func(s *Store) error { _, err := s.Free(); return err }, map[int64]uint64{3: 4}}, // writes the catalog anew
		{(*Store).Close, map[int64]uint64{3: 4}},
	}
}

// walk makes the changes, and tells when each was made.
func walk(home string) error {
	s, err := Open(home)
	if err != nil {
		return err
	}
	for i, c := range changes() {
		if err := c.do(s); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		fmt.Println("changed")
	}
	return nil
}

// traced runs the walk under strace.
func traced(t *testing.T, home, trace string, options ...string) (changed int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args := append([]string{"-f", "-y", "-qq", "-s", "0", "-o", trace}, options...)
	cmd := exec.CommandContext(ctx, "strace", append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), "DRUN_TEST_WALK="+home, "GODEBUG=")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if errs.Len() > 0 {
		t.Fatalf("%v: %s", err, &errs)
	}
	return strings.Count(out.String(), "changed\n"), err
}

// A process is killed at every call that writes: before the first, and so after each.
// What is there afterwards is the state before or after a change, whole; and what is
// saved from then on is saved.
func TestKilledAtEveryWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes, and none has several goroutines of drun's")
	}
	strace(t)
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			ready := t.TempDir()
			s, err := Open(ready)
			ok(t, err)
			for step := range int64(2) {
				_, err := s.Save("r", 1+step, nil, walkPart(uint64(1+step)))
				ok(t, err)
			}
			ok(t, s.Close())
			ok(t, alter(filepath.Join(ready, "checkpoints.db"), "PRAGMA journal_mode = "+journal))
			killEverywhere(t, ready, changes())
		})
	}
	// A store that is being made.
	t.Run("new", func(t *testing.T) {
		all := changes()
		for _, c := range all {
			delete(c.want, 1)
			delete(c.want, 2)
		}
		killEverywhere(t, t.TempDir(), all)
	})
}

// killEverywhere makes the changes to copies of a home.
func killEverywhere(t *testing.T, ready string, all []change) {
	fresh := func() string {
		home := t.TempDir()
		ok(t, os.CopyFS(home, os.DirFS(ready)))
		return home
	}
	trace := filepath.Join(t.TempDir(), "trace")
	home := fresh()
	if n, err := traced(t, home, trace, "-e", "trace="+boundaries); err != nil || n != len(all) {
		t.Fatalf("%d changes: %v", n, err)
	}
	text, err := os.ReadFile(trace)
	ok(t, err)
	type boundary struct {
		call string
		nth  int
	}
	var list []boundary
	counts := map[string]int{}
	line := regexp.MustCompile(`(?m)^(\d+) +(\w+)\(`)
	calls := line.FindAllSubmatchIndex(text, -1)
	for _, m := range calls {
		if thread, call := string(text[m[2]:m[3]]), string(text[m[4]:m[5]]); thread == string(text[calls[0][2]:calls[0][3]]) {
			counts[call]++
			end := len(text)
			if i := bytes.IndexByte(text[m[0]:], '\n'); i >= 0 {
				end = m[0] + i
			}
			// Those that touch the home, or tell what was done.
			if l := string(text[m[0]:end]); strings.Contains(l, home) || strings.Contains(l, "/checkpoints") || call == "write" {
				list = append(list, boundary{call, counts[call]})
			}
		}
	}
	stride := 1
	if os.Getenv("DRUN_TEST_WALK_ALL") == "" {
		stride = len(list)/25 + 1
	}
	t.Logf("%d calls, of which every %d. is tried: %v", len(list), stride, counts)
	killed := 0
	for i := rand.IntN(stride); i < len(list); i += stride {
		b := list[i]
		home := fresh()
		n, err := traced(t, home, os.DevNull, "-e", "trace="+b.call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", b.call, b.nth))
		if err != nil {
			killed++
		}
		where := fmt.Sprintf("killed at the %d. %s, after %d changes", b.nth, b.call, n)
		checkWalked(t, home, all, n, where)
		os.RemoveAll(home)
		if t.Failed() {
			t.Fatal(where)
		}
	}
	if tried := (len(list) + stride - 1) / stride; killed < tried*9/10 {
		t.Errorf("killed %d of %d times", killed, tried)
	}
}

// checkWalked checks a store after n changes, and perhaps one more.
func checkWalked(t *testing.T, home string, all []change, n int, where string) {
	t.Helper()
	s, err := Open(home)
	ok(t, err)
	defer s.Close()
	is := map[int64]uint64{}
	list, err := s.List("r")
	ok(t, err)
	for _, info := range list {
		_, entries, err := s.Load("r", info.Ref(), 0)
		ok(t, err)
		for seed := uint64(1); seed < 5; seed++ {
			if reflect.DeepEqual(entries[1], walkPart(seed)[0][1]) {
				is[info.Step] = seed
			}
		}
		_, other, err := s.Load("r", info.Ref(), 1)
		ok(t, err)
		if want := walkPart(is[info.Step]); !reflect.DeepEqual(other[1], want[1][1]) || !bytes.Equal(other[0].Data, want[1][0].Data) || !bytes.Equal(entries[0].Data, want[0][0].Data) {
			t.Errorf("%s: step %d is not whole", where, info.Step)
		}
	}
	if want := all[max(n-1, 0)].want; !reflect.DeepEqual(is, want) && (n == len(all) || !reflect.DeepEqual(is, all[max(n, 1)].want)) {
		t.Errorf("%s: there are %v, want %v, or what the next change makes of it", where, is, want)
	}
	for step := range int64(2) { // the second is of a generation that is surely newer than what was left
		_, err := s.Save("r", 10+step, nil, walkPart(uint64(10+step)))
		ok(t, err)
	}
	reopen(t, home)
	known, err := s.uses()
	ok(t, err)
	names, _ := packFiles(t, home)
	for _, name := range names {
		if !slices.ContainsFunc(known, func(p packUse) bool { return p.file == name }) {
			t.Errorf("%s: %s is left", where, name)
		}
	}
	if info, faults, err := s.Verify("r", Last); err != nil || len(faults) > 0 || info.Step != 11 {
		t.Errorf("%s: afterwards step %d: %v %v", where, info.Step, faults, err)
	}
}
