package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"drun/internal/try"
)

// proofCommand measures what an audit adds to a step, what the digests of updates add to it, to which a pack commits, and how
// long a pack takes beside a copy of it. Each is measured in turn with what it is compared with.
const proofCommand = "proof"

// comparison is one of them.
type comparison struct {
	name, what   string
	bar          float64
	with, beside func() (seconds float64, err error)
}

func measureProof(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	folder := try.To(os.MkdirTemp("", "drun-bench-"))
	defer os.RemoveAll(folder)
	f := flag.NewFlagSet(proofCommand, flag.ContinueOnError)
	drun := f.String("drun", "bin/drun", "the drun to measure")
	rounds := f.Int("rounds", 15, "how many times to measure each")
	processor := f.Bool("cpu", false, "compare processor time, starts included: beside other programs it says more")
	var scale float64
	f.Float64Var(&scale, "scale", 1, "of the numbers of steps, and of the GiB that are packed")
	try.Ok(f.Parse(args))
	home := filepath.Join(folder, "home")
	timed := func(args ...string) (float64, error) {
		_, seconds, err := command{args, 0}.run(ctx)
		return seconds, err
	}
	step := func(drun *string, model string, steps float64, more ...string) func() (float64, error) {
		return func() (_ float64, err error) {
			defer try.Caught(&err)
			args := append([]string{*drun, "run", "bench/" + model + ".star", "--home", home, "--threads", "1", "-p", fmt.Sprintf("steps=%.0f", max(1, steps*scale))}, more...)
			output, _ := try.To2(command{args, 0}.run(ctx))
			figures := parseFigures(output)
			i := slices.IndexFunc(figures, func(f figure) bool { return f.name == model+" step" })
			try.FailIf(i < 0, "bench/%s.star has printed no step", model)
			return figures[i].value, nil
		}
	}
	committed, uncommitted := new(filepath.Join(folder, "committed")), new(filepath.Join(folder, "uncommitted"))
	file, copied := filepath.Join(folder, "run.zip"), filepath.Join(folder, "copy.zip")
	all := []comparison{{"pack", "", 1.5,
		func() (float64, error) {
			os.Remove(file)
			return timed(*drun, "pack", "packed", "-o", file, "--home", home)
		},
		func() (float64, error) {
			os.Remove(copied)
			return timed("sh", "-c", `cp "$0" "$1" && sync "$1"`, file, copied)
		}}}
	for _, m := range []struct {
		name  string
		steps float64
	}{{"digits", 20_000}, {"cnn", 100}, {"gpt", 60}} {
		if m.name != "digits" {
			all = append(all, comparison{"audit", m.name, 1.03, step(drun, m.name, m.steps, "--audit"), step(drun, m.name, m.steps)})
		}
		all = append(all, comparison{"commitment", m.name, 1.01, step(committed, m.name, m.steps), step(uncommitted, m.name, m.steps)})
	}
	chosen := func(c comparison) bool {
		return f.NArg() == 0 || slices.Contains(f.Args(), c.name) || slices.Contains(f.Args(), c.name+"-"+c.what)
	}
	all = slices.DeleteFunc(all, func(c comparison) bool { return !chosen(c) })
	try.FailIf(len(all) == 0, "there are pack, audit, audit-cnn, audit-gpt, commitment, commitment-digits, commitment-cnn and commitment-gpt")
	if chosen(comparison{name: "pack"}) {
		try.To(timed(*drun, "run", "bench/checkpoints.star", "--name", "packed", "--home", home, "-p", "rounds=4", "-p", fmt.Sprintf("mib=%.0f", max(1, 256*scale))))
		try.To(all[0].with())
	}
	if slices.ContainsFunc(all, func(c comparison) bool { return c.name == "commitment" }) {
		try.Ok(buildBoth(ctx, folder, *committed, *uncommitted))
	}
	fmt.Fprintf(out, "%s Medians of %d rounds.\n", machine(), *rounds)
	for _, c := range all {
		try.Ok(c.measure(*rounds, *processor, out))
	}
	return nil
}

func (c comparison) measure(rounds int, processor bool, out io.Writer) (err error) {
	defer try.Caught(&err)
	s := samples{}
	for range rounds {
		for who, run := range map[string]func() (float64, error){"with": c.with, "beside": c.beside} { // in either order
			before := childrenTime()
			seconds := try.To(run())
			if processor {
				seconds = childrenTime() - before
			}
			s.add(who, figure{"", seconds, "s"})
		}
	}
	with, beside := measured{"with", ""}, measured{"beside", ""}
	of := s.medians()
	_, err = fmt.Fprintf(out, "%s %s: %.4f%s, bar %.2f: %v beside %v\n", c.name, c.what, of[with].value/of[beside].value, s.spread(with, beside), c.bar, of[with], of[beside])
	return err
}

// buildBoth builds drun as it is, and without digests of updates.
func buildBoth(ctx context.Context, folder, committed, uncommitted string) (err error) {
	defer try.Caught(&err)
	const source = "engine/worker/digests.go"
	text := try.To(withoutDigests(try.To(os.ReadFile(source))))
	path, overlay := filepath.Join(folder, "digests.go"), filepath.Join(folder, "overlay.json")
	try.Ok(os.WriteFile(path, text, 0o600))
	replaced := map[string]map[string]string{"Replace": {source: path}}
	try.Ok(os.WriteFile(overlay, try.To(json.Marshal(replaced)), 0o600))
	for program, flags := range map[string][]string{committed: nil, uncommitted: {"-overlay", overlay}} {
		args := append([]string{"build", "-ldflags=-s", "-o", program}, flags...)
		if said, err := exec.CommandContext(ctx, "go", append(args, "./cmd/drun")...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w: %s", args, err, said)
		}
	}
	return nil
}

// withoutDigests changes the source of the digests so that there are none.
func withoutDigests(source []byte) ([]byte, error) {
	const add = "\nfunc (d *digests) add(parts []starlib.Memory) error {\n"
	if bytes.Count(source, []byte(add)) != 1 {
		return nil, fmt.Errorf("the digests of updates are no longer made by%s", add)
	}
	return bytes.Replace(source, []byte(add), []byte(add+"\tif d.rank.Updates++; d.rank.Updates > 0 {\n\t\treturn nil\n\t}\n"), 1), nil
}
