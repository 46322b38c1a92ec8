package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
)

// TestNumerics holds the version of the arithmetic to the digests of its results: where a change gives
// other bits, keys of runs must change, too.
func TestNumerics(t *testing.T) {
	sum := sha256.New()
	for _, path := range []string{"../kernel/testdata/orders.txt", "../tensor/optim/testdata/bits.txt"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	const version, want = 3, "9adf68e95d5411f0cc0b148f4f9c67ce82108ea5fb598581aca12e3e603bdced"
	if got := hex.EncodeToString(sum.Sum(nil)); Numerics != version || got != want {
		t.Errorf("Numerics is %d with results of digest %s, want %d with %s: if a recipe gets other bits, raise Numerics; then put both here", Numerics, got, version, want)
	}
}
