// Package exchange writes runs of the history in the forms of other tools, and reads those of other tools. `drun
// export` and `drun import` call it.
package exchange

import (
	"bufio"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"time"

	"drun/history"
	"drun/internal/terminal"
	"drun/plugins/host"
)

// Format is a form in which runs can be written.
type Format struct {
	Name string
	// Write writes runs with all their points.
	Write func(w io.Writer, db *history.DB, runs []int64) error
	// Binary forms are not for a terminal.
	Binary bool
}

// Formats are all of them.
var Formats = []Format{
	{"csv", writeCSV, false},
	{"json", writeJSON, false},
	{"parquet", writeParquet, true},
}

// points calls fn with each point of the runs.
func points(db *history.DB, runs []int64, fn func(r *history.Summary, p *history.Point) error) error {
	list, err := db.Select(history.Selection{IDs: runs})
	if err != nil {
		return err
	}
	for _, id := range runs {
		for i := range list {
			if list[i].ID != id {
				continue
			}
			of, err := db.Points(id)
			if err != nil {
				return err
			}
			for k := range of {
				if err := fn(&list[i], &of[k]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// columns are those of CSV and of Parquet.
var columns = []string{"run", "run_name", "metric", "step", "rank", "value", "time"}

func writeCSV(w io.Writer, db *history.DB, runs []int64) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	err := points(db, runs, func(r *history.Summary, p *history.Point) error {
		return out.Write([]string{strconv.FormatInt(r.ID, 10), r.Name, terminal.Cell(p.Name), strconv.FormatInt(p.Step, 10), strconv.Itoa(p.Rank),
			history.Float(p.Value).String(), p.Time.Format(time.RFC3339Nano)})
	})
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}

// writeJSON writes a list of the runs as drun show --json prints them, each with its points.
func writeJSON(w io.Writer, db *history.DB, runs []int64) error {
	out := bufio.NewWriter(w)
	for i, id := range runs {
		d, err := db.Get(id)
		if err != nil {
			return err
		}
		of, err := db.Points(id)
		if err != nil {
			return err
		}
		before := ",\n"
		if i == 0 {
			before = "[\n"
		}
		text, err := json.Marshal(struct {
			*history.Detail
			Points []history.Point `json:"points"`
		}{d, of})
		if err != nil {
			return err
		}
		fmt.Fprint(out, before, terminal.JSON(string(text)))
	}
	fmt.Fprintln(out, "\n]")
	return out.Flush()
}

// Encode writes the points for columnar.Parquet: five numbers, and the names of run and metric.
func Encode(w io.Writer, db *history.DB, runs []int64) error {
	out := bufio.NewWriterSize(w, 1<<20)
	var row []byte
	err := points(db, runs, func(r *history.Summary, p *history.Point) error {
		row = row[:0]
		for _, n := range []uint64{uint64(r.ID), uint64(p.Step), uint64(p.Rank), math.Float64bits(p.Value), uint64(p.Time.UnixMicro())} {
			row = binary.LittleEndian.AppendUint64(row, n)
		}
		for _, text := range []string{r.Name, p.Name} {
			row = binary.LittleEndian.AppendUint32(row, uint32(len(text)))
			row = append(row, text...)
		}
		_, err := out.Write(row)
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// writeParquet has drun-plugin-host write the file, as its library would slow the start of drun.
func writeParquet(w io.Writer, db *history.DB, runs []int64) error {
	program, err := host.FindProgram()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "parquet")
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = Encode(in, db, runs)
	if err != nil {
		_ = cmd.Process.Kill() // it must not take what came for all
	}
	in.Close()
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("%s could not write Parquet: %w", program, ended)
	}
	return err
}
