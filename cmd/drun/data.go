package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib/data"
)

func newData() *cobra.Command {
	memory, apart := uint64(16<<30), false
	cmd := &cobra.Command{
		Use:   "data FILE",
		Short: "Print what a data file holds",
		Long: `Print what a data file holds: its format, rows, columns and their types, arrays
and their shapes, the first rows. It reads what recipes read: CSV, TSV, JSON lines,
Parquet, Arrow, npy, npz, idx, safetensors, PNG, JPEG, tar and text, also compressed
with gzip or zstd. The whole file is read, so a damaged file is an error that says where.`,
		Example: `  drun data train.csv
  drun data weights.safetensors --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if apart {
				try.Ok(syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: memory, Max: memory}))
			} else if data.HasColumns(args[0]) {
				return describeApart(cmd, args[0], memory)
			}
			d := try.To(data.Describe(args[0]))
			return show(cmd, d, printDescription)
		},
	}
	cmd.Flags().Uint64Var(&memory, "memory", memory, "bytes of memory that it takes at most to read Parquet or Arrow")
	cmd.Flags().BoolVar(&apart, "apart", apart, "this is the process that reads it, with no more memory than that")
	_ = cmd.Flags().MarkHidden("memory")
	_ = cmd.Flags().MarkHidden("apart")
	return cmd
}

// describeApart describes a file in a separate process, which may use only memory bytes: the libraries that read
// Parquet and Arrow allocate as much as a damaged file asks for, and then kill the process.
func describeApart(cmd *cobra.Command, file string, memory uint64) error {
	args := []string{"data", "--apart", fmt.Sprintf("--memory=%d", memory)}
	if wantsJSON(cmd) {
		args = append(args, "--json")
	}
	var stderr bytes.Buffer
	child := exec.CommandContext(cmd.Context(), "/proc/self/exe", append(args, "--", file)...)
	child.Args[0] = os.Args[0]
	child.Stdout, child.Stderr = cmd.OutOrStdout(), &stderr
	err := child.Run()
	var ended *exec.ExitError
	if err == nil || !errors.As(err, &ended) || cmd.Context().Err() != nil {
		return errors.Join(cmd.Context().Err(), err)
	}
	if strings.Contains(stderr.String(), "fatal error: ") || !ended.Exited() {
		return fmt.Errorf("%s: it cannot be read with %s of memory: it is damaged, or too large; data.stream reads a file of any size piece by piece", file, humanize.IBytes(memory))
	}
	_, _ = cmd.ErrOrStderr().Write(stderr.Bytes())
	return exit.Errorf(exit.Code(ended.ExitCode()), "")
}

func printDescription(out io.Writer, d *data.Description) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s", d.File, d.Format, humanize.IBytes(uint64(d.Bytes)))
	if d.Rows != nil {
		fmt.Fprintf(&b, ", %d %s", *d.Rows, cmp.Or(map[string]string{"tar": "files", "text": "lines"}[d.Format], "rows"))
	}
	b.WriteString("\n")
	for _, c := range d.Columns {
		fmt.Fprintf(&b, "  %s: %s", terminal.Escape(c.Name), c.Type)
		if c.Time != "" {
			fmt.Fprintf(&b, " of microseconds (%s)", terminal.Escape(c.Time))
		}
		if c.Missing > 0 {
			fmt.Fprintf(&b, ", %d missing", c.Missing)
		}
		b.WriteString("\n")
	}
	for _, t := range d.Tensors {
		name := terminal.Escape(t.Name)
		if name != "" {
			name += ": "
		}
		fmt.Fprintf(&b, "  %s%s %v\n", name, t.Type, t.Shape)
	}
	for _, row := range d.First {
		if list, ok := row.([]any); ok {
			cells := make([]string, len(list))
			for i, v := range list {
				if cells[i] = fmt.Sprint(v); v == nil {
					cells[i] = "-"
				}
			}
			row = strings.Join(cells, " | ")
		}
		fmt.Fprintf(&b, "  %s\n", terminal.Escape(fmt.Sprint(row)))
	}
	if ext := filepath.Ext(d.File); d.Format == "bytes" && (ext == ".pt" || ext == ".pth") {
		b.WriteString("  hint: PyTorch's own format is a program (pickle): write it in Python with safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
