package checkpoints

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The test binary runs itself again as a process that saves until it is
// killed, or that walks through the changes of TestKilledAtEveryWrite.
func TestMain(m *testing.M) {
	home, walked := os.Getenv("DRUN_TEST_SAVE"), os.Getenv("DRUN_TEST_WALK")
	if home == "" && walked == "" {
		os.Exit(m.Run())
	}
	var err error
	if walked != "" {
		err = walk(walked)
	} else {
		most, _ := strconv.ParseInt(os.Getenv("DRUN_TEST_SAVES"), 10, 64)
		err = save(home, most)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const crashRanks = 2

// state is what rank saves at a step; part of it does not change.
func state(step int64, rank int) []Entry {
	size := 1 << 20
	if os.Getenv("DRUN_TEST_SMALL") != "" {
		size = 5000
	}
	return []Entry{
		{Name: "step", Data: []byte(strconv.FormatInt(step, 10))},
		{Name: "fixed", Data: noise(99, 2*size)},
		{Name: "w", Shape: []int{3, size / 20}, DType: "float32", Kind: "tensor", Data: noise(uint64(step)*10+uint64(rank), 3*size)},
	}
}

// save saves so many checkpoints; 0: until it is killed, which also means without
// closing the store.
func save(home string, most int64) error {
	s, err := Open(home)
	if err != nil {
		return err
	}
	step, run := int64(0), os.Getenv("DRUN_TEST_RUN")
	if info, err := s.Find(run, Last); err == nil {
		step = info.Step
	}
	for {
		step++
		parts := map[int][]Entry{}
		for rank := range crashRanks {
			parts[rank] = state(step, rank)
		}
		fmt.Println("saving", step)
		if _, err := s.Save(run, step, nil, parts); err != nil {
			return err
		}
		fmt.Println("saved", step)
		if step == most {
			return nil
		}
		if step > 3 {
			if err := remove(s, run, step-3); err != nil {
				return err
			}
		}
	}
}

func TestKilledWhileSaving(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes, which -race is not for")
	}
	home := t.TempDir()
	rounds, garbage := 12, 0
	took := 10 * time.Millisecond // how long a save takes here
	for round := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "DRUN_TEST_SAVE="+home, "DRUN_TEST_RUN=r")
		out, err := cmd.StdoutPipe()
		ok(t, err)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		ok(t, cmd.Start())
		saved, begun := int64(0), time.Time{}
		saves := 1 + rand.IntN(3) // it is killed in the last of these, or soon after
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, number, _ := strings.Cut(lines.Text(), " ")
			if word == "saving" {
				begun = time.Now()
				if saves--; saves == 0 {
					time.AfterFunc(rand.N(took*5/4), func() { cmd.Process.Kill() })
				}
				continue
			}
			took = time.Since(begun)
			saved, err = strconv.ParseInt(number, 10, 64)
			ok(t, err)
		}
		err = cmd.Wait()
		cancel()
		if err == nil || stderr.Len() > 0 || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("round %d: child ended with %v: %s", round, err, &stderr)
		}
		before, _ := packFiles(t, home)
		garbage += checkAfterKill(t, home, saved, len(before))
	}
	t.Logf("%d of %d rounds left an unfinished pack", garbage, rounds)
	if garbage == 0 {
		t.Error("no kill came in the middle of a save: the test tested nothing")
	}
}

// checkAfterKill opens the store and reports whether there was garbage.
func checkAfterKill(t *testing.T, home string, saved int64, packsBefore int) int {
	t.Helper()
	s, err := Open(home)
	ok(t, err)
	defer s.Close()
	list, err := s.List("r")
	ok(t, err)
	if len(list) == 0 && saved > 0 || len(list) > 0 && list[len(list)-1].Step < saved {
		t.Fatalf("step %d was saved, the list is %+v", saved, list)
	}
	for _, info := range list {
		for rank := range crashRanks {
			_, entries, err := s.Load("r", Step(info.Step), rank)
			ok(t, err)
			for i, want := range state(info.Step, rank) {
				if entries[i].Name != want.Name || !bytes.Equal(entries[i].Data, want.Data) {
					t.Fatalf("step %d, rank %d: %s is not what was saved", info.Step, rank, want.Name)
				}
			}
		}
	}
	names, _ := packFiles(t, home)
	for _, name := range names {
		var n int
		ok(t, s.sql.QueryRow("SELECT count(*) FROM packs WHERE file = ?", name).Scan(&n))
		if _, header := s.openOwn(name); n == 0 && header.version == 0 {
			t.Errorf("garbage %s was not collected", name)
		}
	}
	if len(names) < packsBefore {
		return 1
	}
	return 0
}
