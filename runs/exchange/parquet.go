package exchange

import (
	"io"
	"time"

	"github.com/parquet-go/parquet-go"

	"drun/history"
	"drun/history/records"
)

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
