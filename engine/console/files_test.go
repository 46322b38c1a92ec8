package console

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestParseStreams(t *testing.T) {
	for text, want := range map[string][3][2]bool{ // whether stdout and stderr of the local ranks 0, 1 and 2 are meant
		"0": {}, "1": {{true, false}, {true, false}, {true, false}}, "2": {{false, true}, {false, true}, {false, true}}, "3": {{true, true}, {true, true}, {true, true}},
		"0:3": {{true, true}}, "1:1,0:2": {{false, true}, {true, false}},
	} {
		s, err := ParseStreams(text)
		for local := range want {
			for stream, is := range want[local] {
				if err != nil || s.has(local, stream) != is {
					t.Errorf("%q: local rank %d, stream %d: %v, want %v; %v", text, local, stream, s.has(local, stream), is, err)
				}
			}
		}
	}
	for _, text := range []string{"", "4", "-1", "33", "x", "0:", ":3", "-1:3", "0:4", "0:1,0:2", "3,0:1", "0:1,", "3,3"} {
		if s, err := ParseStreams(text); err == nil {
			t.Errorf("%q was taken: %v", text, s)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var out, errs bytes.Buffer
	streams := func(text string) Streams {
		s, err := ParseStreams(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	c := New(&out, &errs, true, false, nil, &Files{Dir: dir, Redirects: streams("0:1,1:3"), Tee: streams("0:2,1:2")})
	for attempt := range 2 {
		for rank := range 3 {
			if err := c.Begin("calm-otter", attempt, 4+rank, rank); err != nil {
				t.Fatal(err)
			}
			c.Line(4+rank, false, "said")
			c.Line(4+rank, true, "warned")
		}
	}
	if got, want := out.String(), "[6] said\n[6] said\n"; got != want {
		t.Errorf("stdout shows %q, want %q", got, want)
	}
	if got, want := errs.String(), "[4] warned\n[5] warned\n[6] warned\n[4] warned\n[5] warned\n[6] warned\n"; got != want {
		t.Errorf("stderr shows %q, want %q", got, want)
	}
	for _, attempt := range []string{"attempt_0", "attempt_1"} {
		for file, want := range map[string]string{"4/stdout.log": "said\n", "4/stderr.log": "warned\n", "5/stdout.log": "said\n", "5/stderr.log": "warned\n"} {
			if text, err := os.ReadFile(filepath.Join(dir, "calm-otter", attempt, file)); err != nil || string(text) != want {
				t.Errorf("%s/%s: %q, %v", attempt, file, text, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "calm-otter", attempt, "6")); err == nil {
			t.Error("rank 6 has a folder")
		}
	}
	// A file that cannot be written is told once.
	if err := os.Remove(filepath.Join(dir, "calm-otter", "attempt_1", "4", "stderr.log")); err != nil {
		t.Fatal(err)
	}
	errs.Reset()
	_ = c.files.open[4].files[1].Close()
	c.Line(4, true, "more")
	c.Line(4, true, "and more")
	if n := bytes.Count(errs.Bytes(), []byte("no longer")); n != 1 || !bytes.Contains(errs.Bytes(), []byte("[4] and more")) {
		t.Errorf("stderr shows %s", errs.String())
	}
	if err := os.WriteFile(filepath.Join(dir, "taken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Begin("taken", 0, 4, 0); err == nil {
		t.Error("a folder that cannot be made was taken")
	}
}
