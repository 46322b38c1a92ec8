package shm

import (
	"context"
	"testing"

	"drun/collective"
)

// told is a store in which the first rank has said where its memory is.
type told string

func (told) Set(context.Context, string, []byte) error     { return nil }
func (p told) Get(context.Context, string) ([]byte, error) { return []byte(p), nil }

// A first rank that ends before the others have opened its memory is to blame, not they.
func TestFirstRankThatIsGone(t *testing.T) {
	for path, suspects := range map[told]bool{"/proc/self/fd/999999": true, told(t.TempDir()): false} {
		if _, err := Rendezvous(t.Context(), path, "memory", 1, 2); err == nil || collective.Suspects(err) != suspects {
			t.Errorf("%s: %v", path, err)
		}
	}
}
