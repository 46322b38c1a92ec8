package columns

import (
	"bytes"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"drun/starlib/data/table"
)

// Columns that only an older writer's annotations describe have the types that these say.
func TestConvertedTypes(t *testing.T) {
	for _, c := range []struct {
		node parquet.Node
		as   deprecated.ConvertedType
		kind table.Kind
		cell any // of the integer 5, or the text "5"
	}{
		{parquet.String(), deprecated.UTF8, table.Text, "5"}, {parquet.String(), deprecated.Enum, table.Text, "5"}, {parquet.String(), deprecated.Json, table.Text, "5"},
		{parquet.String(), deprecated.Bson, table.Any, []byte("5")}, {parquet.String(), deprecated.Interval, table.Any, nil},
		{parquet.Leaf(parquet.Int32Type), deprecated.Date, table.Int, int64(5 * perDay)},
		{parquet.Leaf(parquet.Int32Type), deprecated.TimeMillis, table.Int, int64(5000)}, {parquet.Leaf(parquet.Int64Type), deprecated.TimeMicros, table.Int, int64(5)},
		{parquet.Leaf(parquet.Int64Type), deprecated.TimestampMillis, table.Int, int64(5000)}, {parquet.Leaf(parquet.Int64Type), deprecated.TimestampMicros, table.Int, int64(5)},
		{parquet.Leaf(parquet.Int32Type), deprecated.Uint8, table.Int, int64(5)}, {parquet.Leaf(parquet.Int32Type), deprecated.Uint32, table.Int, int64(5)},
		{parquet.Leaf(parquet.Int64Type), deprecated.Uint64, table.Int, int64(5)}, {parquet.Leaf(parquet.Int32Type), deprecated.Int8, table.Int, int64(5)},
		{parquet.Leaf(parquet.Int64Type), deprecated.Int64, table.Int, int64(5)}, {parquet.Leaf(parquet.Int64Type), deprecated.Decimal, table.Float, 0.05},
		{parquet.Leaf(parquet.Int64Type), 99, table.Any, nil},
	} {
		var b bytes.Buffer
		w := parquet.NewWriter(&b, parquet.NewSchema("file", parquet.Group{"x": c.node}))
		value := parquet.ValueOf("5")
		switch c.node.Type().Kind() {
		case parquet.Int32:
			value = parquet.Int32Value(5)
		case parquet.Int64:
			value = parquet.Int64Value(5)
		}
		if _, err := w.WriteRows([]parquet.Row{{value.Level(0, 0, 0)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		old := withFooter(t, b.Bytes(), func(footer *format.FileMetaData) {
			e := &footer.Schema[1]
			e.LogicalType = format.LogicalType{}
			e.ConvertedType.Set(c.as)
			e.Scale.Set(2)
			e.Precision.Set(9)
		})
		r, err := openBytes("parquet", old, []string{})
		if err != nil {
			t.Fatalf("%v: %v", c.as, err)
		}
		f := r.Fields()[0]
		if f.Kind != c.kind || f.Refused != (c.cell == nil) {
			t.Errorf("%v: %+v", c.as, f)
		}
		times := map[deprecated.ConvertedType]string{deprecated.Date: "DATE", deprecated.TimeMillis: "TIME(", deprecated.TimeMicros: "TIME(",
			deprecated.TimestampMillis: "TIMESTAMP(", deprecated.TimestampMicros: "TIMESTAMP("}
		if !strings.HasPrefix(f.Type, times[c.as]) {
			t.Errorf("%v: the type is named %s, not as newer writers do: %s", c.as, f.Type, times[c.as])
		}
		if c.cell == nil {
			continue
		}
		if r, err = openBytes("parquet", old, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Next(1); err != nil || told(got.Columns[0].Cell(0)) != told(c.cell) {
			t.Errorf("%v: %v, %v, want %v", c.as, got, err, c.cell)
		}
	}
}
