package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"drun/internal/terminal"
)

// The table fits whatever plugins and folders are called, and nothing of a problem is lost.
func TestBackendsFitTheTerminal(t *testing.T) {
	long := strings.Repeat("a folder/", 30)
	problem := "it is broken: " + strings.Repeat("reason after reason ", 40) + "end"
	var out bytes.Buffer
	err := listBackends(&out, []backendInfo{
		{Name: "shm", BuiltIn: true, Version: "devel-0123456789ab+dirty", Usable: true},
		{Name: strings.Repeat("n", 100), Version: strings.Repeat("v", 300), Path: "/" + long + "drun-backend-x", Usable: true},
		{Name: "gloo", Path: "/opt/" + long + "drun-backend-gloo", Problem: problem, asked: true},
		{Name: "other", Path: "/usr/bin/drun-backend-other", Problem: "not used before"},
	})
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(out.String(), "\n\n") // what plugins say, the terminal wraps
	for line := range strings.Lines(table) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > terminal.Width(&out) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if flat := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(flat, "gloo: "+problem) {
		t.Errorf("the problem is not all there: %s", out.String())
	}
	for _, want := range []string{"other", "not asked", "/usr/bin", " no ", "built in"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, out.String())
		}
	}
}
