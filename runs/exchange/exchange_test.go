package exchange

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"drun/history"
	"drun/history/records"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var when = time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)

// values are those that forms lose.
var values = []float64{0.1, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 5e-324, math.MaxFloat64, 1}

func recorded(t testing.TB) *history.DB {
	t.Helper()
	db, err := history.Open(t.TempDir())
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	for i, name := range []string{"first", "second"} {
		r, err := db.Begin(history.RunInfo{Name: name, Recipe: "a.star", WorldSize: 2, Backend: "shm", Started: when, Given: records.Given{Command: []string{"drun"}}})
		ok(t, err)
		b := &history.Batch{Params: []history.Param{{Name: "lr", Value: 0.5}, {Name: "n", Value: 3}}}
		for k, v := range values {
			b.Points = append(b.Points, records.Point{Name: "loss", Step: int64(k * (i + 1)), Rank: k % 2, Value: v, Exact: true, Time: when})
		}
		b.Points = append(b.Points, records.Point{Name: "=cmd(\"'\x1b\n,", Value: 2, Time: when})
		ok(t, r.Write(b))
		ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done, Seconds: 2}}))
	}
	return db
}

func written(t testing.TB, form string) []byte {
	t.Helper()
	var out bytes.Buffer
	db, runs := recorded(t), []int64{2, 1}
	for _, f := range Formats {
		if f.Name == form {
			ok(t, f.Write(&out, db, runs))
		}
	}
	return out.Bytes()
}

func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

func TestCSV(t *testing.T) {
	rows, err := csv.NewReader(bytes.NewReader(written(t, "csv"))).ReadAll()
	ok(t, err)
	if len(rows) != 1+2*(len(values)+1) || strings.Join(rows[0], " ") != "run run_name metric step rank value time" {
		t.Fatalf("%q", rows)
	}
	for k, v := range values {
		row := rows[1+k]
		got, err := strconv.ParseFloat(row[5], 64)
		if err != nil || !same(got, v) || row[0] != "2" || row[1] != "second" || row[2] != "loss" || row[3] != strconv.Itoa(2*k) || row[6] != "2026-01-02T03:04:05.123456Z" {
			t.Errorf("%q, %v", row, err)
		}
	}
	if got := rows[len(values)+1][2]; got != "'=cmd(\"'\x1b\n," {
		t.Errorf("%q", got)
	}
}

func TestJSON(t *testing.T) {
	text := written(t, "json")
	var runs []struct {
		ID     int64
		Params map[string]any
		Points []struct {
			Name  string
			Step  int64
			Value any
		}
	}
	ok(t, json.Unmarshal(text, &runs))
	if len(runs) != 2 || runs[0].ID != 2 || runs[1].Params["lr"] != 0.5 || len(runs[1].Points) != len(values)+1 || runs[1].Points[1].Value != "NaN" || runs[1].Points[3].Value != "-Infinity" || bytes.Contains(text, []byte{0x1b}) {
		t.Errorf("%s", text)
	}
}

func TestParquet(t *testing.T) {
	text := written(t, "parquet")
	rows, err := parquet.Read[row](bytes.NewReader(text), int64(len(text)))
	ok(t, err)
	if len(rows) != 2*(len(values)+1) {
		t.Fatal(len(rows))
	}
	for k, v := range values {
		if r := rows[len(values)+1+k]; r.Run != 1 || r.RunName != "first" || r.Metric != "loss" || r.Step != int64(k) || r.Rank != int32(k%2) || !same(r.Value, v) || !r.Time.Equal(when) {
			t.Errorf("%+v", r)
		}
	}
}

// python is the one into which make exchange has put the packages of other tools.
func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/exchange/bin/python")
	ok(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skip("pyarrow, TensorBoard and MLflow are not installed: make bin/exchange")
	}
	cmd := exec.Command(program, append([]string{"-c", script}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

// What Apache Arrow reads is what was written.
func TestParquetReadByArrow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.parquet")
	ok(t, os.WriteFile(file, written(t, "parquet"), 0o600))
	got := python(t, `
import sys, struct, pyarrow.parquet as pq
t = pq.read_table(sys.argv[1])
print(t.column_names, t.schema.field("time").type)
for r in t.to_pylist()[:8]:
    print(r["run"], r["run_name"], r["metric"], r["step"], r["rank"], struct.pack(">d", r["value"]).hex(), r["time"].isoformat())
`, file)
	want := "['run', 'run_name', 'metric', 'step', 'rank', 'value', 'time'] timestamp[us, tz=UTC]\n"
	for k, v := range values {
		want += strings.Join([]string{"2 second loss", strconv.Itoa(2 * k), strconv.Itoa(k % 2), strings.Repeat("0", 16-len(strconv.FormatUint(math.Float64bits(v), 16))) + strconv.FormatUint(math.Float64bits(v), 16), "2026-01-02T03:04:05.123456+00:00\n"}, " ")
	}
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
