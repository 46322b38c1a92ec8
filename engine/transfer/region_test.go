package transfer

import (
	"testing"

	"drun/engine"
)

func asked(g *Region) *engine.HandOver {
	to := &engine.HandOver{}
	g.Ask(to)
	return to
}

// A spare region is used again, unless it is too small or far too large.
func TestRegionsAreUsedAgain(t *testing.T) {
	var p Regions
	defer p.Close()
	first, _ := p.Take(10 << 20)
	p.Give(first)
	for _, c := range []struct {
		bytes int64
		again bool
	}{{10 << 20, true}, {9 << 20, true}, {11 << 20, false}, {1 << 20, false}, {1, false}} {
		old := p.spare
		g, err := p.Take(c.bytes)
		if err != nil || (g == old) != c.again || g.Used != c.bytes || int64(len(g.Mem)) < c.bytes {
			t.Errorf("%d bytes: %v, used again: %v", c.bytes, err, g == old)
		}
		if ask := asked(g); ask.Written {
			t.Errorf("%d bytes: the region is said to be written", c.bytes)
		}
		p.Give(g)
	}
	g, _ := p.Take(1)
	g.Written = 100
	for bytes, written := range map[int64]bool{1: true, 100: true, 101: false} {
		g.Used = bytes
		if ask := asked(g); ask.Written != written {
			t.Errorf("of 100 bytes that are written %d are asked for as %v", bytes, ask.Written)
		}
	}
	p.Give(g)
}
