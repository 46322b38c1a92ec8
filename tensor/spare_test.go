package tensor

import (
	"os"
	"testing"
)

// The tests of this package run with kept memory spoilt: a result that was read from it is NaN, or wrong.
func TestMain(m *testing.M) {
	spoil = true
	os.Exit(m.Run())
}
