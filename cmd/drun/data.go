package main

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/internal/terminal"
	"drun/starlib/data"
)

func newData() *cobra.Command {
	return &cobra.Command{
		Use:   "data FILE",
		Short: "Print what a file of data holds",
		Long: `Print what a file of data holds: its format, rows, columns and their types, arrays
and their shapes, the first rows. It reads what recipes read: CSV, TSV, JSON lines,
npy, npz, idx, safetensors, PNG, JPEG, tar and text, also compressed with gzip or zstd.
The whole file is read, so a damaged file is an error that says where.`,
		Example: `  drun data train.csv
  drun data weights.safetensors --json`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := data.Describe(args[0])
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), d)
			}
			return printDescription(cmd, d)
		},
	}
}

func printDescription(cmd *cobra.Command, d *data.Description) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s", d.File, d.Format, humanize.IBytes(uint64(d.Bytes)))
	if d.Rows != nil {
		fmt.Fprintf(&b, ", %d %s", *d.Rows, map[string]string{"tar": "files", "text": "lines"}[d.Format])
	}
	text := b.String()
	if strings.HasSuffix(text, " ") {
		text += "rows"
	}
	b.Reset()
	b.WriteString(text + "\n")
	for _, c := range d.Columns {
		fmt.Fprintf(&b, "  %s: %s", terminal.Escape(c.Name), c.Type)
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
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}
