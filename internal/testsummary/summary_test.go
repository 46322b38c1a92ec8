package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"testsummary": main})
}

func TestSummary(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		e.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
		e.Setenv("GOFLAGS", "-trimpath")
		e.Setenv("GOPROXY", "off")
		return nil
	}})
}
