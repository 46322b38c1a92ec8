package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"drun/internal/programs"
)

// Each comparison prints its ratio.
func TestProof(t *testing.T) {
	t.Chdir("..")
	drun, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := measureProof(t.Context(), []string{"-drun", drun, "-rounds", "2", "-scale", "0.01", "-cpu", "pack", "audit"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`pack`, `audit cnn`, `audit gpt`} {
		if !regexp.MustCompile(`(?m)^` + line + ` ?: \d+\.\d+ \(.* to .*\), bar 1\.\d+: \S+ [mµ]?s beside \S+ [mµ]?s$`).MatchString(out.String()) {
			t.Errorf("no line of %s:\n%s", line, out.String())
		}
	}
	source, err := os.ReadFile("engine/worker/digests.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withoutDigests(source); err != nil {
		t.Error(err)
	}
	if err := measureProof(t.Context(), []string{"packs"}, &out); err == nil {
		t.Error("a comparison that there is not was accepted")
	}
}
