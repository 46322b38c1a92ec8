package chunk_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"drun/starlib/lang/chunk"
)

const file = `# A file of two.
# name: first
# ranks: 1 2 4
# backend: shm

x = 1 # name: not in the head
--- 
y = f()  ### "no \\w+"
s = "--- ###" + z   ### ` + "`\"z\"`" + `
`

func TestRead(t *testing.T) {
	chunks, err := chunk.Read("f.star", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(chunks) != 2 {
		t.Fatalf("%d chunks, want 2", len(chunks))
	}
	a, b := chunks[0], chunks[1]
	if a.Name != "first" || !reflect.DeepEqual(a.Ranks, []int{1, 2, 4}) || a.Header["backend"] != "shm" || len(a.Header) != 3 || a.Line != 1 || a.Want != nil {
		t.Errorf("first chunk: %+v", a)
	}
	if b.Name != "line 8" || b.Ranks != nil || len(b.Header) != 0 {
		t.Errorf("second chunk: %+v", b)
	}
	// Lines are numbered as in the file.
	if bytes.Contains(b.Source, []byte("no \\w+")) { // a traceback would show what is expected, and be taken for it
		t.Errorf("the source has the expectations in it: %s", b.Source)
	}
	if got := strings.Split(string(b.Source), "\n")[7]; !strings.HasPrefix(got, "y = f()") {
		t.Errorf("line 8 of the second chunk: %q", got)
	}
	if len(b.Want) != 2 || b.Want[0].Line != 8 || b.Want[0].Pattern.String() != `no \w+` || b.Want[1].Pattern.String() != `"z"` {
		t.Errorf("expectations: %v", b.Want)
	}
}

func TestCheck(t *testing.T) {
	chunks, err := chunk.Read("f.star", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	c := chunks[1]
	for _, test := range []struct {
		faults []chunk.Fault
		wrong  []string
	}{
		{[]chunk.Fault{{8, "there is no function"}, {9, `"z" is unknown`}}, nil},
		{nil, []string{"f.star:8: no error here", "f.star:9: no error here"}},
		{[]chunk.Fault{{8, "no f"}, {8, "other"}, {9, `"z"`}}, []string{"f.star:8: unexpected error: other"}},
		{[]chunk.Fault{{9, "no f"}, {9, `"z"`}}, []string{"f.star:9: unexpected error: no f", "f.star:8: no error here"}},
	} {
		got := c.Check(test.faults)
		ok := len(got) == len(test.wrong)
		for i := 0; ok && i < len(got); i++ {
			ok = strings.HasPrefix(got[i], test.wrong[i])
		}
		if !ok {
			t.Errorf("Check(%v) = %q, want %q", test.faults, got, test.wrong)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for src, want := range map[string]string{
		"x\n---\n":                        "f.star:3: an empty chunk",
		"x\n---\n# only comments\n---\ny": "f.star:3: an empty chunk",
		"# ranks: 0\nx":                   "f.star:1: ranks",
		"# ranks: 2 2\nx":                 "f.star:1: ranks",
		"# ranks:\nx":                     "f.star:1: ranks",
		"# name: a\n# name: b\nx":         `f.star:2: a second "name"`,
		"# name: a\nx\n---\n# name: a\ny": `f.star:4: a second chunk`,
		"x ### no quotes":                 "f.star:1: a ### without",
		`x ### "("`:                       "f.star:1: expected error",
		"x ### \"\\q\"":                   "f.star:1: expected error",
	} {
		if _, err := chunk.Read("f.star", []byte(src)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Read(%q): %v, want %s", src, err, want)
		}
	}
}
