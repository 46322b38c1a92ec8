package worker

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"drun/engine"
	"drun/history/records"
	"drun/internal/queue"
	"drun/starlib"
)

// Every byte of the parameters is in the digest of some update, of small ones in each.
func TestDigestOfParameters(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, sizes := range [][]int{{4}, {64, 0, 4}, {digestedAtOnce}, {digestedAtOnce + 4}, {5*digestedAtOnce + 12, 8}, {8, 2 * digestedAtOnce, 70000}} {
		var parts []starlib.Memory
		total := 0
		for _, n := range sizes {
			part := make([]byte, n)
			for i := range part {
				part[i] = byte(rng.Uint32())
			}
			parts = append(parts, plain(part))
			total += n
		}
		windows := (total + digestedAtOnce - 1) / digestedAtOnce
		all := func() (list []uint64) {
			for n := range windows {
				list = append(list, digestOf(parts, int64(n+7*windows)))
			}
			return list
		}
		want := all()
		for i := range parts {
			part := parts[i].(plain)
			for range min(len(part), 50) {
				at, bit := rng.IntN(len(part)), byte(1)<<rng.IntN(8)
				part[at] ^= bit
				differ := 0
				for n, sum := range all() {
					if sum != want[n] {
						differ++
					}
				}
				if differ != 1 {
					t.Errorf("%v: byte %d of part %d is in %d digests, want 1", sizes, at, i, differ)
				}
				part[at] ^= bit
			}
		}
	}
}

// Marks hold points at equal distances in one row, and give back each step's updates.
func TestMarks(t *testing.T) {
	d := &digests{rank: &starlib.Rank{}, open: map[string]int{}}
	r := &recorder{digests: d}
	var m engine.ToAgent
	log := func(name string, step, updates int64) {
		d.rank.Updates = updates
		r.mark(&m, name, step)
	}
	for i := range int64(100) {
		log("loss", i, i+1)
		if i%10 == 9 {
			log("acc", i/10, i+1)
			log("", i, i+1)
		}
	}
	log("odd", 7, 100)
	log("odd", 7, 100)
	log("odd", 3, 100)
	marks := m.Records.Marks
	for seq, want := range []records.Mark{{Name: "loss", Step: 0, Updates: 1, StepBy: 1, UpdatesBy: 1, Count: 100}, {Name: "acc", Step: 0, Updates: 10, StepBy: 1, UpdatesBy: 10, Count: 10},
		{Step: 9, Updates: 10, StepBy: 10, UpdatesBy: 10, Count: 10}, {Name: "odd", Step: 7, Updates: 100, Count: 2}, {Name: "odd", Step: 3, Updates: 100, Count: 1}} {
		want.Seq = seq
		if marks[seq] != want {
			t.Errorf("mark %d is %+v, want %+v", seq, marks[seq], want)
		}
	}
	if len(marks) != 5 {
		t.Errorf("there are %d marks, want 5", len(marks))
	}
}

// BenchmarkUpdate is what the digest adds to a step of an optimizer, with its record, for parameters of the size
// of the examples': digits has 38 KiB, cnn 420 KiB and gpt 460 KiB. A step of digits takes some 250 µs.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{264, 38 << 10, 420 << 10, 64 << 20} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			rec := &recorder{queue: queue.New[engine.ToAgent](limits)}
			d := &digests{worker: &worker{record: rec}, rank: &starlib.Rank{}}
			defer rec.queue.Close()
			go func() {
				for range rec.queue.Ready() {
					if _, _, closed := rec.queue.Take(); closed {
						return
					}
				}
			}()
			params := []starlib.Memory{plain(make([]byte, n))}
			for b.Loop() {
				if err := d.updated(nil, params, nil, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
