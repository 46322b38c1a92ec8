package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/ui"
)

func newUI() *cobra.Command {
	var host, dir string
	var port int
	var open, write bool
	cmd := &cobra.Command{
		Use:   "ui [RUN…|FILE]",
		Short: "Show the history as pages for a browser",
		Long: `Serves pages that show the history, live while runs go on, until SIGINT or SIGTERM. It prints an address with a
token, which admits one browser; once it is used, the address for the next one is printed. The pages fetch nothing from elsewhere, and only read; with --write
they also name, tag, annotate, stop and remove runs, and save views. --export writes the pages of all runs, or of those named, as files for a report. FILE is one of drun pack. Other machines can reach them only with --host; the connection is then not encrypted.`,
		Example: `  drun ui
  drun ui --port 8080 --open
  drun ui --export report 7 calm-otter
  drun ui otter.zip`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if close := try.To(packed(cmd, args[0])); close != nil {
					defer close()
					args = nil
				}
			}
			if cmd.Flags().Changed("export") {
				return exportUI(cmd, dir, args)
			}
			if len(args) > 0 {
				return usage("drun ui --export DIR RUN… writes the pages of some runs", "drun ui shows all runs")
			}
			if port < 0 || port > 65535 {
				return usage("0 takes a free one", "--port %d: ports are 0 to 65535", port)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if db, err := history.OpenReadOnly(homeOf(cmd)); err == nil {
				followAgain(cmd, db)
				db.Close()
			}
			return serveUI(ctx, cmd, host, port, open, write)
		},
	}
	f := cmd.Flags()
	f.StringVar(&host, "host", "127.0.0.1", "name or address to listen on; 0.0.0.0: all")
	f.IntVar(&port, "port", 0, "port to listen on; 0: a free one")
	f.StringVar(&dir, "export", "", "write the pages into the new folder `DIR` instead")
	f.BoolVar(&open, "open", false, "open the address in the browser")
	f.BoolVar(&write, "write", false, "let the pages name, tag, annotate, stop and remove runs, and save views")
	return cmd
}

func serveUI(ctx context.Context, cmd *cobra.Command, host string, port int, open, write bool) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return exit.WithHint(exit.Errorf(exit.Usage, "%v", err), "another --port, or 0 for a free one")
	}
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		fmt.Fprintln(cmd.ErrOrStderr(), "the pages are open to other machines that know the token, and the connection is not encrypted")
	}
	server := ui.New(homeOf(cmd))
	server.Write = write
	first := true
	err = server.Serve(ctx, listener, host, func(address string) {
		if first {
			_ = answer(cmd, map[string]string{"address": address}, "%s", address)
			if first = false; open {
				openBrowser(cmd, address)
			}
			debug.SetGCPercent(50) // it holds many points that stay: memory counts for more than the time of collecting it
			giveWay()              // after the browser was started, which keeps its priority
			return
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "for another browser: %s\n", address)
	})
	return errors.Join(err, server.Close())
}

func exportUI(cmd *cobra.Command, dir string, runs []string) error {
	server := ui.New(homeOf(cmd))
	n, err := server.Export(dir, runs)
	try.Ok(errors.Join(err, server.Close()))
	return answer(cmd, map[string]any{"folder": dir, "runs": n}, "%s: %s; open %s", dir, english.Plural(n, "run", ""), filepath.Join(dir, "index.html"))
}

// giveWay lowers the priority of this process, so that looking at a run slows it down as little as possible. New
// threads inherit the priority of the thread that starts them.
func giveWay() {
	for range 2 { // threads may be started during the first pass
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && 20-now < niceness {
				_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness) // without permission, the priority stays as it is
			}
		}
	}
}

const niceness = 10

func openBrowser(cmd *cobra.Command, address string) {
	command := exec.Command("xdg-open", address)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends the server, not the browser
	if err := command.Start(); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "no browser could be opened: %s\n", terminal.Escape(err.Error()))
		return
	}
	go func() { _ = command.Wait() }()
}
