// Package exchange writes runs of the history in other tools' formats, and reads other tools' runs. `drun export`
// and `drun import` call it.
package exchange

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"

	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/internal/try"
)

// Format is a format in which runs can be written.
type Format struct {
	Name string
	// Write writes runs with all their points.
	Write func(w io.Writer, db *history.DB, runs []int64) error
	// Binary formats are not for a terminal.
	Binary bool
}

// Formats lists all formats.
var Formats = []Format{
	{"csv", writeCSV, false},
	{"json", writeJSON, false},
	{"parquet", writeParquet, true},
}

func points(db *history.DB, runs []int64, fn func(r *history.Summary, p *records.Point) error) (err error) {
	defer try.Caught(&err)
	list := try.To(db.Summaries(runs))
	for i := range list {
		of := try.To(db.Points(list[i].ID))
		for k := range of {
			try.Ok(fn(&list[i], &of[k]))
		}
	}
	return nil
}

var columns = []string{"run", "run_name", "metric", "step", "rank", "value", "time"}

func writeCSV(w io.Writer, db *history.DB, runs []int64) (err error) {
	defer try.Caught(&err)
	out := csv.NewWriter(w)
	try.Ok(out.Write(columns))
	try.Ok(points(db, runs, func(r *history.Summary, p *records.Point) error {
		return out.Write([]string{strconv.FormatInt(r.ID, 10), r.Name, terminal.Cell(p.Name), strconv.FormatInt(p.Step, 10), strconv.Itoa(p.Rank),
			records.Float(p.Value).String(), p.Time.Format(time.RFC3339Nano)})
	}))
	out.Flush()
	return out.Error()
}

// writeJSON writes a list of the runs in the form of drun show --json, each with its points.
func writeJSON(w io.Writer, db *history.DB, runs []int64) (err error) {
	defer try.Caught(&err)
	out := bufio.NewWriter(w)
	for i, id := range runs {
		d := try.To(db.Get(id))
		of := try.To(db.Points(id))
		before := ",\n"
		if i == 0 {
			before = "[\n"
		}
		text := try.To(json.Marshal(struct {
			*history.Detail
			Points []records.Point `json:"points"`
		}{d, of}))
		fmt.Fprint(out, before, terminal.JSON(string(text)))
	}
	fmt.Fprintln(out, "\n]")
	return out.Flush()
}

// row is a point in Parquet, with the columns of CSV.
type row struct {
	Run     int64     `parquet:"run"`
	RunName string    `parquet:"run_name,dict"`
	Metric  string    `parquet:"metric,dict"`
	Step    int64     `parquet:"step,delta"`
	Rank    int32     `parquet:"rank"`
	Value   float64   `parquet:"value"`
	Time    time.Time `parquet:"time,timestamp(microsecond)"`
}

func writeParquet(w io.Writer, db *history.DB, runs []int64) error {
	out := parquet.NewGenericWriter[row](w, parquet.Compression(&parquet.Snappy), parquet.CreatedBy("drun", "1", ""))
	err := points(db, runs, func(r *history.Summary, p *records.Point) error {
		_, err := out.Write([]row{{r.ID, r.Name, p.Name, p.Step, int32(p.Rank), p.Value, p.Time.UTC()}})
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}
