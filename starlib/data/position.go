package data

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
)

// A loader's state is its position in an epoch, and what decides which samples came before it. So with another
// number of ranks each of the epoch's samples still comes once, and a loader over other samples is noticed.

// division is how ranks divided what was left of an epoch's samples, for some batches of each rank.
type division struct{ ranks, size, batches int }

// rest returns what remains of the samples after a division.
func (d division) rest(samples []int64, mixed bool, last lastPart) []int64 {
	given := make([]bool, len(samples))
	for rank := range d.ranks {
		s := newShare(len(samples), d.size, rank, d.ranks, mixed, last)
		for i := range min(d.batches, s.batches()) {
			for lo, hi := s.bounds(i); lo < min(hi, len(samples)); lo++ {
				given[lo] = true
			}
		}
	}
	var left []int64
	for i, n := range samples {
		if !given[i] {
			left = append(left, n)
		}
	}
	return left
}

// batchesOf returns how many batches the divisions gave each rank.
func batchesOf(divisions []division) (n int) {
	for _, d := range divisions {
		n += d.batches
	}
	return n
}

// mixed reports whether the samples' order depends on the epoch.
func (l *Loader) mixed() bool { return l.shuffle || l.sampler != nil }

// saved is a loader's state. Older programs saved less of it.
type saved struct {
	epoch, batch int
	kind         kind
	divisions    []division // of the current epoch, the loader's own last; of a stream the loader's own only
	batches      int        // in this rank's epoch, where the divisions are unknown; otherwise -1
	given        int64      // samples of a stream, to all ranks
	at           *streamPosition
}

// kind is what must be the same for each sample to come once.
type kind struct {
	samples int // of a dataset; of a stream a checksum of its files
	mixed   int // 0 or 1
	last    int // see lastPart
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (l *Loader) kind() kind {
	samples := l.samples
	if l.stream != nil {
		samples = l.stream.print
	}
	return kind{samples, bit(l.mixed()), int(l.last)}
}

// State returns the position: the epoch, how many of its batches this rank has had, and what the rest of the epoch depends on.
func (l *Loader) State() []starlib.Entry {
	at := l.at
	if l.stream != nil && l.active != nil && l.active.source != nil {
		at = l.active.source.(*pass).position()
	}
	own := division{l.ranks, l.size, l.batch - batchesOf(l.before)}
	k := l.kind()
	numbers := []int{k.samples, k.mixed, k.last}
	for _, d := range append(l.before[:len(l.before):len(l.before)], own) {
		numbers = append(numbers, d.ranks, d.size, d.batches)
	}
	divided := startensor.IntTuple(numbers)
	entries := []starlib.Entry{{Name: "epoch", Value: starlark.MakeInt(l.epoch)}, {Name: "batch", Value: starlark.MakeInt(l.batch)}}
	if l.stream == nil {
		return append(entries, starlib.Entry{Name: "batches", Value: divided})
	}
	given := append(starlark.Tuple{starlark.MakeInt64(at.given*int64(l.ranks) + at.skip)}, divided...)
	return append(entries, starlib.Entry{Name: "given", Value: given}, starlib.Entry{Name: "position", Value: at.pack()})
}

func (l *Loader) read(entries []starlib.Entry) (s *saved, err error) {
	defer try.Caught(&err)
	s = &saved{epoch: l.epoch, batch: l.batch, kind: l.kind(), batches: -1}
	divided := "batches"
	if l.stream != nil {
		divided = "given"
	}
	for _, e := range entries {
		numbers, list := e.Value.(starlark.Tuple)
		if !list {
			numbers = starlark.Tuple{e.Value}
		}
		position, is := e.Value.(starlark.Bytes)
		if is && e.Name == "position" && l.stream != nil {
			at := try.To(unpackPosition(position))
			s.at = &at
			continue
		}
		var ns []int
		for i, v := range numbers {
			n, ok := v.(starlark.Int)
			wide, fits := n.Int64()
			large := e.Name == "given" && i == 0 || e.Name == "batches" && i < len(numbers)-3
			try.FailIf(!ok || !fits || wide < 0 || wide > math.MaxInt32 && !large, "a loader's %s must be a number of 0 or more, not %s", e.Name, v)
			ns = append(ns, int(wide))
		}
		switch {
		case e.Name == "epoch" && len(ns) == 1:
			s.epoch = ns[0]
		case e.Name == "batch" && len(ns) == 1:
			s.batch = ns[0]
		case e.Name == divided && len(ns) > 0:
			if l.stream != nil {
				s.given, ns = int64(ns[0]), ns[1:]
			} else if len(ns) == 1 {
				s.batches, ns = ns[0], nil
			}
			if len(ns) == 0 {
				continue
			}
			try.FailIf(len(ns) < 6 || len(ns)%3 != 0, "a loader's %s is corrupt", e.Name)
			s.kind = kind{ns[0], ns[1], ns[2]}
			for d := range slices.Chunk(ns[3:], 3) {
				try.FailIf(d[0] < 1 || d[1] < 1, "a loader's %s is corrupt", e.Name)
				s.divisions = append(s.divisions, division{d[0], d[1], d[2]})
			}
		default:
			try.Fail("a loader has no state %q", e.Name)
		}
	}
	return s, nil
}

// Differences says why samples of the epoch would come twice, or not at all, if the loader continued from a state.
func (l *Loader) Differences(entries []starlib.Entry, resized bool) []string {
	s, err := l.read(entries)
	if err != nil || s.batch == 0 && s.given == 0 {
		return nil // SetState returns the error
	}
	const so = "within an epoch, samples would come twice or not at all"
	was, is := division{}, division{ranks: l.ranks, size: l.size}
	if len(s.divisions) > 0 {
		was = s.divisions[len(s.divisions)-1]
	}
	switch now := l.kind(); {
	case s.divisions == nil && (resized || s.batches >= 0 && s.batches != l.Len()):
		return []string{fmt.Sprintf("an older drun saved it after %d batches of an epoch of other ranks, samples or batches, without saying which samples those were: %s", s.batch, so)}
	case s.divisions == nil:
		return nil
	case s.kind.mixed != now.mixed || s.kind.last != now.last:
		return []string{"it was saved in the middle of an epoch with another shuffle, sampler, drop_last or pad: " + so}
	case s.kind.samples != now.samples && l.stream != nil:
		return []string{"it was saved in the middle of an epoch over other files, or they have changed: " + so}
	case s.kind.samples != now.samples:
		return []string{fmt.Sprintf("it was saved in the middle of an epoch of %d samples, and the dataset has %d: %s", s.kind.samples, now.samples, so)}
	case was.size != is.size:
		return []string{fmt.Sprintf("it was saved in the middle of an epoch with batch = %d, and the loader has batch = %d: %s", was.size, is.size, so)}
	case was.ranks != is.ranks && l.stream != nil && l.shuffle:
		return []string{fmt.Sprintf("it was saved in the middle of a shuffled epoch of a stream by a group of %d ranks, and the loader's has %d; each had drawn from a buffer of its own: %s", was.ranks, is.ranks, so)}
	case resized && l.stream != nil && l.shuffle && s.at != nil && s.at.given == 0: // as Resize has left it
		return []string{"it was saved in the middle of a shuffled epoch of a stream by another number of ranks; each had drawn from a buffer of its own: " + so}
	}
	return nil
}

// SetState sets the position. With another number of ranks, the samples of the epoch that are left are divided among
// them. If the state is of other samples or batches, which Differences reports, the loader continues after the same part
// of the epoch, in a stream after as many records.
func (l *Loader) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	s := try.To(l.read(entries))
	l.epoch, l.batch, l.before, l.at, l.active = s.epoch, s.batch, nil, streamPosition{}, nil
	own := len(s.divisions) > 0 && s.divisions[len(s.divisions)-1].ranks == l.ranks
	switch {
	case s.batch == 0 && s.given == 0:
	case l.stream != nil && s.at != nil && (own || s.divisions == nil) && s.kind == l.kind():
		l.at = *s.at
	case l.stream != nil:
		l.batch, l.at = int(min(s.given/int64(l.size)/int64(l.ranks), math.MaxInt32)), streamPosition{skip: s.given}
	case s.divisions != nil && s.kind == l.kind():
		if l.before = s.divisions; own && s.divisions[len(s.divisions)-1].size == l.size {
			l.before = s.divisions[:len(s.divisions)-1]
		}
		l.batch = batchesOf(s.divisions)
	default:
		if s.divisions != nil {
			last := s.divisions[len(s.divisions)-1]
			whole := newShare(s.kind.samples, last.size, 0, last.ranks, s.kind.mixed > 0, lastPart(s.kind.last))
			s.batches = whole.batches()
		}
		if n := l.Len(); s.batches > 0 && s.batches != n {
			l.batch = s.batch * n / s.batches
		}
		l.batch = min(l.batch, l.Len())
	}
	return nil
}

// Resize gives every rank the position of rank 0. Of a stream, in which every rank is at a record of its own, only
// the number of records that all have had remains. Whatever else differed between ranks is lost.
func (l *Loader) Resize(entries []starlib.Entry, to starlib.Resized) ([]starlib.Entry, bool) {
	s, err := l.read(entries)
	if err != nil {
		return entries, false
	}
	var out []starlib.Entry
	for _, e := range entries {
		if e.Name == "position" && (to.Differ(e.Name) || s.divisions == nil) {
			e.Value = (&streamPosition{skip: s.given}).pack()
		} else if to.Differ(e.Name) {
			continue
		}
		out = append(out, e)
	}
	return out, false
}
