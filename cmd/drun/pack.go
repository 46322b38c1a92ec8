package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/proof"
)

func newPack() *cobra.Command {
	var file string
	var o proof.Packing
	cmd := &cobra.Command{
		Use:   "pack RUN",
		Short: "Put a run into one file that somebody else can check",
		Long: `Writes a run into one file: recipe, parameters, metrics, logs, what the recipe kept, the digest of every update,
checkpoints, and the names and SHA-256 of the data files. The root that it prints commits to all of that: whoever has
the root notices any change. The file is a zip archive of an SQLite database, safetensors and text, which can be read
without drun. RUN is an id, a name, or last.`,
		Example: `  drun pack last
  drun pack calm-otter -o otter.zip --with-data --sign ~/.ssh/id_ed25519`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"none", "last", "best", "all"}, o.Weights) {
				return usage("", "--weights wants none, last, best or all, not %q", o.Weights)
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				path := file
				if path == "" {
					path = try.To(db.Get(id)).Name + ".zip"
				}
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					return usage("give the name of a new file with -o", "%s already exists", path)
				}
				p, err := proof.Write(homeOf(cmd), db, id, path, o)
				if !errors.As(err, new(exit.Coded)) && (errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))) {
					err = exit.WithCode(fmt.Errorf("%s could not be written: %w", path, cause(err)), exit.Storage)
				}
				try.Ok(err)
				for _, note := range p.Notes {
					tell(cmd)(note)
				}
				return answer(cmd, p, "%s: %s, %s, %s; root %s", path, humanize.IBytes(uint64(p.Bytes)), english.Plural(p.Segments, "segment", ""), english.Plural(p.Checkpoints, "checkpoint", ""), p.Root)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "the new `file` (default: NAME.zip)")
	f.StringVar(&o.Weights, "weights", "all", "of which checkpoints: none, last, best or all")
	f.BoolVar(&o.Data, "with-data", false, "the files that the run read, too")
	f.StringVar(&o.Sign, "sign", "", "sign the root with the SSH key in this `file`, by ssh-keygen")
	return cmd
}

func newUnpack() *cobra.Command {
	return &cobra.Command{
		Use:   "unpack FILE",
		Short: "Enter the run of a pack into the history",
		Long: `Enters the run in a file of drun pack into the history, with its checkpoints, under a new id and, if its name is
taken, with a number after the name. Nothing of it is run; drun verify FILE does that.`,
		Example: "  drun unpack otter.zip",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := try.To(proof.Open(args[0]))
			defer p.Close()
			u := try.To(p.Unpack(homeOf(cmd)))
			return answer(cmd, u, "run %d %s: unpacked, with %s", u.ID, u.Name, english.Plural(u.Checkpoints, "checkpoint", ""))
		},
	}
}

// packed opens the run of a pack that is named instead of a run, and makes its home the command's; nil: it is not one.
func packed(cmd *cobra.Command, ref string) (close func(), err error) {
	if !strings.ContainsAny(ref, "./") || !proof.IsPack(ref) {
		return nil, nil
	}
	p, err := proof.Open(ref)
	if err != nil {
		return nil, err
	}
	r, err := p.Run()
	if err != nil {
		p.Close()
		return nil, err
	}
	_ = cmd.Flags().Set("home", r.Home)
	fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s: whole, nothing run again; %s\n", ref, signedText(p))
	return func() { r.Close(); p.Close() }, nil
}

func signedText(p *proof.Pack) string {
	text := "root " + p.Root
	if p.Signer != "" {
		text += ", signed with " + p.Signer
	}
	return terminal.Escape(text)
}

func newVerifyPack() *cobra.Command {
	var c proof.Checking
	var again againFlags
	var root, allowed string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a packed run by running parts of it again",
		Long: `Checks a file of drun pack. Every byte of it must be what its root commits to. Then segments between two checkpoints,
drawn so that who packed it could not foresee them, are run again on this machine, and the parameters after every
update, the metrics and the next checkpoint must have the same bits; --full runs all of it. What differs is named with
its step, operation and line, and the exit code is 1. The recipe is executed as by drun run: look at it first.`,
		Example: `  drun verify otter.zip
  drun verify otter.zip --segments 100 --data ~/data
  drun verify otter.zip --full --root 5f1c…`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Segments < 1 {
				return usage("--full runs all of them", "--segments %d: at least one is needed", c.Segments)
			}
			if flags := cmd.Flags(); c.Full && (flags.Changed("segments") || flags.Changed("seed")) {
				return usage("", "--full runs all segments: it does not go with --segments and --seed")
			}
			again.parseSecrets()
			p := try.To(proof.Open(args[0]))
			defer p.Close()
			if root != "" && root != p.Root {
				return exit.Errorf(exit.Recipe, "%s has another root, %s", args[0], p.Root)
			}
			if allowed != "" {
				who := try.To(p.SignedBy(allowed))
				fmt.Fprintf(cmd.ErrOrStderr(), "drun: signed by %s\n", terminal.Escape(who))
			}
			r := try.To(p.Run())
			defer r.Close()
			o := again.options
			if o.Backend == "" {
				o.Backend = try.To(r.Backend())
			}
			stop := try.To(prepare(cmd, &o))
			defer stop()
			o.Stdout, o.Stderr, o.Terminal = io.Discard, io.Discard, false
			c.Secrets, c.Say = again.params, tell(cmd)
			v := try.To(r.Verify(o, c))
			err := show(cmd, v, func(out io.Writer, v *proof.Verdict) error {
				_, err := fmt.Fprintln(out, terminal.Lines(verdictText(v)))
				return err
			})
			return cmp.Or(err, failedIf(!v.Equal))
		},
	}
	f := cmd.Flags()
	again.add(f)
	f.IntVar(&c.Segments, "segments", 24, "how many segments are drawn")
	f.BoolVar(&c.Full, "full", false, "run all of it again")
	f.StringVar(&c.Seed, "seed", "", "repeat the draw of an earlier check; who packed the file must not have chosen it")
	f.StringArrayVar(&c.Data, "data", nil, "`folder` with the files that the run read (repeatable)")
	f.StringVar(&again.options.Backend, "backend", "", "backend to run it with (default: shm)")
	f.StringVar(&root, "root", "", "the root that the pack must have, as its maker names it")
	f.StringVar(&allowed, "allowed-signers", "", "`file` of SSH keys, one of which must have signed the pack (ssh-keygen(1))")
	return cmd
}

func verdictText(v *proof.Verdict) string {
	did := fmt.Sprintf("%s of %s", english.Plural(v.Segments, "segment", ""), humanize.Comma(int64(v.Of)))
	if v.Seed == nil {
		did = fmt.Sprintf("all %s", english.Plural(v.Of, "segment", ""))
	}
	seed := ""
	if v.Seed != nil {
		seed = ", drawn with --seed " + *v.Seed
	}
	if d := v.First; d != nil {
		text := fmt.Sprintf("different at step %d: %s: packed %s, here %s", d.Step, d.What, d.Packed, d.Here)
		if d.Operation != "" {
			text += fmt.Sprintf("\nthe operation is %s", d.Operation)
			if d.Line != "" {
				text += " at " + d.Line
			}
		}
		return text + fmt.Sprintf("\nof %s%s", did, seed)
	}
	text := fmt.Sprintf("%s, all equal: %s, %s, %s%s", did, english.Plural(int(v.Updates), "update", ""), english.Plural(v.Points, "metric point", ""), english.Plural(v.States, "checkpoint", ""), seed)
	if v.Segments < v.Of {
		text += fmt.Sprintf("\nwho forged 5 %% of the segments would have passed with probability %.2g, who forged one with %.2g", v.Miss5, v.MissOne)
	}
	if v.Undrawable > 0 {
		text += fmt.Sprintf("\n%s could not be drawn: the pack has no state before them", english.Plural(v.Undrawable, "segment", ""))
	}
	return text
}

// parseSecrets reads the values of secret parameters.
func (a *againFlags) parseSecrets() {
	for _, text := range a.secrets {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			try.Ok(usage("", "-p %s: want name=value", text))
		}
		a.params = append(a.params, engine.Param{Name: name, Value: value})
	}
}
