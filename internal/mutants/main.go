// Command mutants puts deliberate bugs into a copy of the repository, one at a time, and reports those that no test
// notices. `make mutants` runs it from the root; arguments select mutants by the beginning of their names (`kernel/`,
// `distributed/shard`).
//
// These are bugs that no tool generates: in C, in bits, durability, collectives and security. gremlins.sh generates
// the others.
//
// A mutant is a file NAME.patch beneath this folder: a sentence that says what the bug breaks, a line `Test: ARGUMENTS`
// with the arguments of the `go test` that must fail, and a unified diff.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	limit := flag.Duration("limit", 5*time.Minute, "how long the tests of one mutant may take; a mutant that hangs counts as noticed")
	budget := flag.Duration("budget", 0, "how long to go on with mutants drawn by chance; 0: with all")
	flag.Parse()
	if err := run(ctx, *limit, *budget, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, limit, budget time.Duration, chosen []string) error {
	begin := time.Now()
	mutants, err := readMutants("internal/mutants")
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
		return len(chosen) > 0 && !slices.ContainsFunc(chosen, func(prefix string) bool { return strings.HasPrefix(m.name, prefix) })
	})
	if len(mutants) == 0 {
		return errors.New("no mutant has such a name")
	}
	tree, err := os.MkdirTemp("", "drun-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := copyTree(ctx, tree); err != nil {
		return err
	}

	if budget > 0 {
		rand.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	}
	sound, tried := map[string]bool{}, 0
	var bad []string
	for _, m := range mutants {
		if budget > 0 && time.Since(begin) > budget {
			break
		}
		tried++
		if _, known := sound[m.test]; !known { // a test that fails without the mutant proves nothing
			result := test(ctx, tree, m.test, limit)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			sound[m.test] = result.verdict == passed
			if !sound[m.test] {
				fmt.Printf("FAILS WITHOUT A MUTANT  go test %s\n%s", m.test, result.output)
			}
		}
		start := time.Now()
		verdict, detail, err := try(ctx, tree, m, limit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if verdict == noticed && !sound[m.test] {
			verdict, detail = "UNPROVED", "its test fails without it too"
		}
		fmt.Printf("%-13s %-36s %6.1fs  %s\n", verdict, m.name, time.Since(start).Seconds(), detail)
		if verdict != noticed {
			bad = append(bad, m.name)
		}
	}
	fmt.Printf("%d of %d mutants tried, %d noticed\n", tried, len(mutants), tried-len(bad))
	if len(bad) > 0 {
		return fmt.Errorf("not noticed: %s", strings.Join(bad, ", "))
	}
	return nil
}

type mutant struct {
	name  string // its path beneath mutants, without the ending
	about string // what it breaks
	test  string // arguments of `go test`, as a shell reads them
	patch string // its file, absolute
}

// readMutants reads the mutants beneath a folder, in the order of their names.
func readMutants(root string) ([]mutant, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		m.name, m.patch = strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ".patch"), file
		all = append(all, m)
	}
	return all, nil
}

func parseMutant(text string) (mutant, error) {
	var m mutant
	head, _, ok := strings.Cut(text, "diff --git ")
	if !ok {
		return m, errors.New("no `diff --git` in it")
	}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if arguments, ok := strings.CutPrefix(line, "Test:"); ok {
			if m.test != "" {
				return m, errors.New("two lines `Test:`; one may name several packages")
			}
			m.test = strings.TrimSpace(arguments)
		} else if line != "" {
			m.about = strings.TrimSpace(m.about + " " + line)
		}
	}
	if m.about == "" {
		return m, errors.New("it does not say what it breaks")
	}
	if m.test == "" {
		return m, errors.New("no line `Test: ARGUMENTS OF GO TEST`")
	}
	return m, nil
}

// copyTree copies all files that git does not ignore, so that mutants never touch the working tree.
func copyTree(ctx context.Context, to string) error {
	const copying = `git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - --ignore-failed-read 2>/dev/null | tar --extract --directory "$0"`
	if out, err := exec.CommandContext(ctx, "sh", "-c", copying, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying the tree: %w: %s", err, out)
	}
	return nil
}

// The outcomes of a test, and of a mutant.
const (
	passed    = "passed"
	noticed   = "noticed"
	missed    = "MISSED"
	unbuilt   = "DOES NOT BUILD"
	unpatched = "DOES NOT APPLY"
)

// try applies a mutant to the tree, runs its test, and reverts it.
func try(ctx context.Context, tree string, m mutant, limit time.Duration) (verdict, detail string, err error) {
	if out, err := apply(ctx, tree, m.patch); err != nil {
		return unpatched, strings.TrimSpace(out), nil
	}
	defer func() {
		out, back := apply(context.WithoutCancel(ctx), tree, "--reverse", m.patch)
		if back != nil {
			err = errors.Join(err, fmt.Errorf("taking the mutant back: %w: %s", back, out))
		}
	}()
	result := test(ctx, tree, m.test, limit)
	switch result.verdict {
	case passed:
		return missed, m.about + " [go test " + m.test + "]", nil
	case unbuilt:
		return unbuilt, result.output, nil
	}
	return noticed, result.first, nil
}

// apply runs `git apply` in a tree. The tree is not a repository of its own, so git is kept from looking for one.
func apply(ctx context.Context, tree string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"apply"}, arguments...)...)
	command.Dir = tree
	command.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree))
	out, err := command.CombinedOutput()
	return string(out), err
}

// result is the outcome of one `go test`.
type result struct {
	verdict string // passed, noticed, or unbuilt
	first   string // the first test that failed
	output  string // what the tests and the compiler printed
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

func test(ctx context.Context, tree, arguments string, limit time.Duration) result {
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute) // go test ends by itself, with stacks, before this does
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("exec go test -json -count 1 -timeout %s %s", limit, arguments))
	command.Dir = tree
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := command.CombinedOutput()
	const nameless = "(no test by name)"
	r, ran := result{verdict: noticed, first: nameless}, false
	for line := range strings.Lines(string(out)) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			r.output += line
			continue
		}
		r.output += e.Output
		switch {
		case e.Action == "build-fail":
			r.verdict = unbuilt
		case e.Action == "pass" && e.Test != "":
			ran = true
		case e.Action == "fail" && e.Test != "" && r.first == nameless:
			r.first = e.Test
		}
	}
	switch {
	case err != nil:
		return r
	case ran:
		return result{verdict: passed}
	}
	return result{verdict: unbuilt, output: "no test ran\n"} // go test also passes when a pattern matches nothing
}
