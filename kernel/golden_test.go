package kernel_test

import (
	"testing"

	"drun/kernel/golden"
)

func TestGolden(t *testing.T) {
	for _, c := range golden.Cases() {
		if result := everywhere(t, c.Run); !c.Right(result) {
			t.Errorf("%q: %q,", c.Name, golden.Sum(result))
		}
	}
}
