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
	for _, path := range []string{"../kernel/testdata/orders.txt", "../tensor/testdata/bits.txt"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	const version, want = 1, "36746a120b25b9f8f9b7d7498175beb19ac65df44f4b9b2b5a24b08782a1e045"
	if got := hex.EncodeToString(sum.Sum(nil)); Numerics != version || got != want {
		t.Errorf("Numerics is %d with results of digest %s, want %d with %s: if a recipe gets other bits, raise Numerics; then put both here", Numerics, got, version, want)
	}
}
