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
	const version, want = 3, "48f4179bb5a99533c38ad7ba365a024f1eeb3574d449edd800ed26f4e46d1a87"
	if got := hex.EncodeToString(sum.Sum(nil)); Numerics != version || got != want {
		t.Errorf("Numerics is %d with results of digest %s, want %d with %s: if a recipe gets other bits, raise Numerics; then put both here", Numerics, got, version, want)
	}
}
