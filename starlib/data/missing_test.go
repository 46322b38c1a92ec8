package data_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"drun/starlib"
	_ "drun/starlib/data/table/columns"
	"drun/starlib/starlibtest"
)

// pandas writes missing numbers to Parquet as NaN.
func TestNaNIsMissing(t *testing.T) {
	type row struct {
		X, Y float64
		Z    int64
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, []row{{1, 1, 0}, {math.NaN(), 2, 1}, {3, 3, 1}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "n.parquet", b.Bytes())
	write(t, dir, "n.csv", []byte("X,Y,Z\n1,1,0\nnan,2,1\n3,3,1\n"))
	for _, source := range []string{`data.table("n.parquet")`, `data.table("n.csv")`, `data.table("n.csv", missing_values = [])`} {
		run := func(rest string) error {
			_, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("n.star", "t = "+source+"\n"+rest)
			return err
		}
		if err := run(`testing.eq(t.dataset(label = "Z", missing = "mean").x.tolist(), [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
testing.eq(t.dataset(label = "Z", missing = "drop").x.tolist(), [[1.0, 1.0], [3.0, 3.0]])
testing.eq([r["X"] == None for r in t], [False, True, False])
`); err != nil {
			t.Errorf("%s: %v", source, err)
		}
		if err := run(`t.dataset(label = "Z")`); err == nil || !strings.Contains(err.Error(), `column "X": row 1 is missing`) {
			t.Errorf("%s: %v", source, err)
		}
	}
	if _, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("s.star", `list(data.loader(data.stream("n.parquet", label = "Z"), batch = 3))`); err == nil || !strings.Contains(err.Error(), "the cell is missing") {
		t.Error(err)
	}
}
