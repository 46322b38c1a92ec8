package launch

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"drun/internal/exit"
	"drun/internal/sshtest"
)

func TestParseHosts(t *testing.T) {
	for text, want := range map[string][]Host{
		"a,user@b.example,c:4": {{"a", 0}, {"user@b.example", 0}, {"c", 4}},
		"::1,[fe80::1]:2":      {{"::1", 0}, {"fe80::1", 2}},
		"10.0.0.1:16":          {{"10.0.0.1", 16}},
	} {
		if got, err := ParseHosts(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ",a", "a,", "-x", "a b", "a:0", "a:-1", "a:x", "a:", "[a]", ":4", "a\n"} {
		if got, err := ParseHosts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A host on which drun cannot start, a shell that says too much, and output in pieces.
func TestHostsWithoutDrun(t *testing.T) {
	if why := sshtest.Missing(); why != "" {
		t.Skip(why)
	}
	server, err := sshtest.Start(t.TempDir(), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	dir := t.TempDir()
	program := filepath.Join(dir, "it's drun")
	for _, test := range []struct {
		name, dir, script, want string
		code                    exit.Code
	}{
		{"no folder", dir + "/none", "", "node 1: b has no folder " + dir + "/none", exit.Usage},
		{"no program", dir, "", "node 1: b has no drun, neither " + program, exit.Usage},
		{"its end", dir, "read s; test \"$s\" = word || exit 9\necho '" + Started + "' >&2; exit 5", "node 1: drun on b ended with exit code 5", 5},
		{"a shell's", dir, "echo no such thing >&2; exit 4", "node 1: the shell on b ended with exit code 4: no such thing", exit.RankLost},
		{"words", dir, "echo welcome >&2; echo '" + Started + "' >&2; printf 'x y' >&2; echo; printf \"$A$1\"; pwd", "", 0},
	} {
		if test.script != "" {
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil { //nolint:gosec // it is executed
				t.Fatal(err)
			}
		}
		var out, errs strings.Builder
		l := &Launch{Hosts: []Host{{Name: "a"}, {Name: "b"}}, SSH: strings.Fields(server.SSH), Program: program, Dir: test.dir, Secret: "word",
			Args: func(int) []string { return []string{"it's\n"} }, Environ: []string{"A=\"a'"}, Stdout: &out, Stderr: &errs}
		err := l.Run(t.Context(), func(ctx context.Context) error {
			if test.want != "" {
				<-ctx.Done()
			}
			return nil
		})
		if test.want == "" {
			if err != nil || out.String() != "\n\"a'it's\n"+dir+"\n" || errs.String() != "x y\n" {
				t.Errorf("%s: %v, %q, %q", test.name, err, out.String(), errs.String())
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), test.want) || exit.CodeOf(err) != test.code {
			t.Errorf("%s: %v, code %d", test.name, err, exit.CodeOf(err))
		}
	}
	if got := (&Launch{SSH: strings.Fields(server.SSH)}).Address(t.Context(), Host{Name: "me@a"}); got != "127.0.0.1" {
		t.Errorf("the address of a is %s", got)
	}
}
