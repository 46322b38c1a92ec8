package terminal

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"text/tabwriter"
)

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "größe": 5, "e\u0301": 1, "日本": 4, "🙂": 2, "👨‍👩": 2, "\x1b[32mdone\x1b[0m": 4} {
		if got := Columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
}

func TestTableAlignsWideTexts(t *testing.T) {
	var out strings.Builder
	w := NewTable(&out)
	fmt.Fprint(w, "NAME\tTAGS\tX\na\t🙂 good\t1\nb\t日本\t2\nc\tgood\t3\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "NAME  TAGS     X\na     🙂 good  1\nb     日本     2\nc     good     3\n"; out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}

// Of texts whose characters take a column each, it makes what text/tabwriter makes.
func TestTableIsAsTabwriter(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var text, got, want strings.Builder
		for range r.IntN(12) {
			for k := range r.IntN(5) {
				if k > 0 {
					text.WriteByte('\t')
				}
				text.WriteString(strings.Repeat("x", r.IntN(6)))
			}
			text.WriteByte('\n')
		}
		mine, theirs := NewTable(&got), tabwriter.NewWriter(&want, 0, 0, 2, ' ', 0)
		fmt.Fprint(mine, text.String())
		fmt.Fprint(theirs, text.String())
		if err := mine.Flush(); err != nil {
			t.Fatal(err)
		}
		theirs.Flush()
		if got.String() != want.String() {
			t.Fatalf("seed %d, of %q\n%s\nwant\n%s", seed, text.String(), got.String(), want.String())
		}
	}
}
