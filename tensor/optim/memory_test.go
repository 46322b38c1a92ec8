package optim

import (
	"fmt"
	"os"
	"testing"
)

// The process may not grow, whatever a model is made of: the resident size of
// this process, in which whole models come and go.
func TestResidentSizeIsSteady(t *testing.T) {
	resident := func() int {
		var pages, size int
		must(fmt.Sscan(string(must(os.ReadFile("/proc/self/statm"))), &pages, &size))
		return size * os.Getpagesize()
	}
	round := func() {
		for _, m := range bitModels {
			m.train()
		}
	}
	for range 10 {
		round()
	}
	before := resident()
	for range 40 {
		round()
	}
	if grown := resident() - before; grown > 24<<20 {
		t.Errorf("40 more rounds of training took %d more bytes", grown)
	}
}
