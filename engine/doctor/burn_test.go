package doctor

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drun/kernel"
	"drun/kernel/golden"
)

// A core that computes wrongly now and then is named, with the kernels that show it.
func TestBurn(t *testing.T) {
	path := kernel.Path()
	defer func() { _ = kernel.SetPath(path) }()
	cases := golden.Cases()
	b, err := Burn(context.Background(), 0, cases)
	if err != nil || len(b.Problems) > 0 || b.Results != int64(len(cases)*len(b.Paths)*b.Cores) {
		t.Errorf("%+v, %v", b, err)
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	bad := -1
	for core := range 1024 {
		if allowed.IsSet(core) {
			bad = core // the last
		}
	}
	var flipped atomic.Int64
	for i, c := range cases {
		if c.Name == "gemm" {
			cases[i].Run = func() []float32 {
				y := c.Run()
				var here unix.CPUSet
				if err := unix.SchedGetaffinity(0, &here); err == nil && here.Count() == 1 && here.IsSet(bad) && kernel.Path() == "scalar" && flipped.Add(1) == 1 {
					y[17] = -y[17]
				}
				return y
			}
		}
	}
	b, err = Burn(context.Background(), 50*time.Millisecond, cases)
	if err != nil || len(b.Wrong) != 1 || b.Wrong[0].Core != bad || b.Wrong[0].Case != "gemm" || b.Wrong[0].Path != "scalar" || b.Wrong[0].Times != 1 || !strings.Contains(b.Problems[0], "computes wrongly") {
		t.Errorf("%+v, %v", b, err)
	}
}
