package main

import (
	"cmp"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine/cluster"
	"drun/engine/doctor"
	"drun/engine/run"
	"drun/history"
	"drun/internal/elapsed"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/kernel/golden"
)

type storage struct {
	Path       string `json:"path"`
	WAL        bool   `json:"wal"`
	FileSystem string `json:"file_system,omitempty"` // if a write-ahead log is not safe on it
}

func (s storage) String() string {
	if s.WAL {
		return s.Path + ", databases with a write-ahead log"
	}
	return fmt.Sprintf("%s, databases with a rollback journal, which is slower: a write-ahead log is not safe on %s", s.Path, s.FileSystem)
}

func newDoctor() *cobra.Command {
	var dirs []string
	var join joinFlags
	var o run.Options
	var burn time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can run: cores, instruction sets, backends, a two-rank self-test",
		Long: "Shows what this machine can run: cores, instruction sets, backends, a two-rank self-test. On several machines, which\n" +
			"meet as those of drun run do (--nnodes and --rdzv on each, --hosts, or a launcher), it measures every machine and\n" +
			"the connection of every two with one rank on each, and names those that are much slower than the others.\n" +
			"--burn D has every core compute for that long on every set of instructions, and compares the bits with those that\n" +
			"all processors give: a core that computes wrongly, even once, is named, and the exit code is 1.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("burn") {
				return burnCores(cmd, burn)
			}
			o.Plugins = dirs
			if join.launched {
				join.given = try.To(obeyLauncher(cmd.InOrStdin(), cmd.ErrOrStderr()))
				announce(&o, cmd.ErrOrStderr())
			} else if cmd.Flags().Changed("hosts") {
				return join.onItsHosts(cmd, func(_ int, joining *cluster.Joining) error { return examineNodes(cmd, o, joining) })
			}
			if joining := try.To(join.joining(cmd, &o.Nproc)); joining != nil && joining.Count > 1 {
				return examineNodes(cmd, o, joining)
			}
			home := storage{Path: homeOf(cmd)}
			home.WAL, home.FileSystem = history.Journal(home.Path)
			devices, _ := examineDevices() // drun devices says why there is none
			r := struct {
				*doctor.Report
				Plugins []backendInfo `json:"plugins"`
				Devices []deviceInfo  `json:"devices"`
				Home    storage       `json:"home"`
			}{doctor.Examine(), findPlugins(cmd, dirs), devices, home}
			out := cmd.OutOrStdout()
			if wantsJSON(cmd) {
				try.Ok(printJSON(out, r))
			} else {
				w := terminal.NewTable(out)
				row(w, "machine", fmt.Sprintf("%s/%s, %d cores", r.OS, r.Arch, r.Cores))
				row(w, "kernels", fmt.Sprintf("%s (available: %s; DRUN_KERNEL forces one)", r.Kernels, strings.Join(r.Paths, ", ")))
				row(w, "backends", strings.Join(r.Backends, ", ")+" (built in)")
				for _, p := range r.Plugins {
					verdict := p.verdict()
					if p.Problem != "" {
						verdict += ": drun backends " + p.Name + " says why"
					}
					row(w, "plugin", fmt.Sprintf("%s, %s: %s", strings.TrimSpace(p.Name+" "+p.Version), p.Path, verdict))
				}
				for _, d := range r.Devices {
					row(w, "device", fmt.Sprintf("%s, %s: %s", d.Device, d.Name, d.bits("computes the processor's bits")))
				}
				row(w, "home", home.String())
				outcome := "ok, in " + elapsed.Text(r.SelfTest.Seconds)
				if !r.SelfTest.OK {
					outcome = "FAILED"
				}
				row(w, "two ranks", outcome)
				w.Flush()
				for _, p := range r.Problems {
					fmt.Fprintf(out, "problem: %s\n", terminal.Lines(p))
				}
			}
			return failedIf(len(r.Problems) > 0)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&burn, "burn", 0, "only look for cores that compute wrongly, for this long")
	f.StringArrayVar(&dirs, "plugin-dir", nil, "`folder` in which to look for plugins first (repeatable)")
	f.StringVar(&o.Backend, "backend", defaultBackend(), "on several machines: the backend that connects them")
	f.DurationVar(&o.Timeout, "timeout", time.Minute, "on several machines: how long to wait for them, and for each other")
	join.add(f)
	return cmd
}

// burnCores looks for cores that compute wrongly.
func burnCores(cmd *cobra.Command, d time.Duration) error {
	if d <= 0 {
		return usage("", "--burn %v: how long should the cores compute?", d)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := try.To(doctor.Burn(ctx, d, golden.Cases()))
	err := show(cmd, b, func(out io.Writer, b *doctor.Burnt) error {
		_, err := fmt.Fprintf(out, "%s, kernels %s, %s in %s\n", english.Plural(b.Cores, "core", ""), strings.Join(b.Paths, ", "), english.Plural(int(b.Results), "result", ""), elapsed.Text(b.Seconds))
		for _, p := range b.Problems {
			fmt.Fprintf(out, "problem: %s\n", terminal.Lines(p))
		}
		if len(b.Problems) == 0 {
			fmt.Fprintln(out, "all have the right bits")
		}
		return err
	})
	return cmp.Or(err, failedIf(len(b.Problems) > 0))
}

// examineNodes measures several machines; node 0 shows what was found.
func examineNodes(cmd *cobra.Command, o run.Options, joining *cluster.Joining) (err error) {
	defer try.Caught(&err)
	o.Join = joining
	stop := try.To(prepare(cmd, &o))
	defer stop()
	r := try.To(doctor.ExamineNodes(o, homeOf(cmd)))
	if r == nil {
		return nil
	}
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		try.Ok(printJSON(out, r))
	} else {
		showNodes(out, r)
	}
	return failedIf(len(r.Problems) > 0)
}

// mostLinks limits how many of the slowest connections are shown.
const mostLinks = 5

func showNodes(out io.Writer, r *doctor.Nodes) {
	w := terminal.NewTable(out)
	row(w, "NODE", "HOST", "CORES", "KERNELS", "MEMORY FREE", "DISK FREE", "DISK WRITES", "COMPUTES", "CLOCK")
	for i, n := range r.Nodes {
		row(w, strconv.Itoa(i), terminal.Escape(n.Host), strconv.Itoa(n.Cores), n.Kernels, fmt.Sprintf("%s of %s", humanize.IBytes(n.Free), humanize.IBytes(n.Memory)),
			humanize.IBytes(n.Disk), fmt.Sprintf("%.0f MB/s", n.Write/1e6), fmt.Sprintf("%.0f GFLOP/s", n.Compute), fmt.Sprintf("%+.0f ms", n.Clock*1e3))
	}
	w.Flush()
	if len(r.Links) == 0 {
		return
	}
	bandwidth, latency := r.Typical()
	fmt.Fprintf(out, "\n%d connections: %.0f MB/s and %.0f µs (medians); the slowest:\n", len(r.Links), bandwidth/1e6, latency*1e6)
	w = terminal.NewTable(out)
	slowest := slices.SortedFunc(slices.Values(r.Links), func(a, b doctor.Link) int { return cmp.Compare(a.Bandwidth, b.Bandwidth) })
	for _, l := range slowest[:min(mostLinks, len(slowest))] {
		row(w, fmt.Sprintf("  node %d to node %d", l.From, l.To), fmt.Sprintf("%.0f MB/s", l.Bandwidth/1e6), fmt.Sprintf("%.0f µs", l.Seconds*1e6))
	}
	w.Flush()
	for _, p := range r.Problems {
		fmt.Fprintf(out, "problem: %s\n", terminal.Lines(p))
	}
}
