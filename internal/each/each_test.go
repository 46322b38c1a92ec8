package each

import (
	"slices"
	"strconv"
	"testing"
)

func TestLists(t *testing.T) {
	if got := Of([]int{7, 8}, strconv.Itoa); !slices.Equal(got, []string{"7", "8"}) {
		t.Errorf("Of made %q", got)
	}
	if got := UpTo(3, strconv.Itoa); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("UpTo made %q", got)
	}
	// A list without elements is one, not nil: in JSON it is [].
	if Of([]int(nil), strconv.Itoa) == nil || UpTo(0, strconv.Itoa) == nil {
		t.Error("no elements made nil")
	}
}
