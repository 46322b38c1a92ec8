package columns

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"
)

// A list whose offsets go back is an error, and not an empty list.
func TestListsThatGoBack(t *testing.T) {
	plain := func(n int, values ...int32) arrow.ArrayData {
		return array.NewData(arrow.PrimitiveTypes.Int32, n, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(values))}, nil, 0, 0)
	}
	list := arrow.ListOf(arrow.PrimitiveTypes.Int32)
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 3, 1}))
	a := array.NewListData(array.NewData(list, 2, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{plain(3, 7, 8, 9)}, 0, 0))
	_, cell := arrowCells(list)
	if v, err := cell(a, 0); err != nil || len(v.([]any)) != 3 {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := cell(a, 1); err == nil || err.Error() != "a list of the elements from 3 to 1, of 3" {
		t.Errorf("%v, %v", v, err)
	}
}

// A row group that says that it has fewer rows than none is an error, and not the end.
func TestFewerRowsThanNone(t *testing.T) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[struct{ X int64 }](&b)
	if _, err := w.Write([]struct{ X int64 }{{1}, {2}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := openParquet(bytes.NewReader(b.Bytes()), nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := r.(*reader).in.(*parquetReader)
	if n, err := in.rows(0); n != 2 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	in.file.Metadata().RowGroups[0].NumRows = -1
	if n, err := in.rows(0); err == nil || !strings.Contains(err.Error(), "row group 0 has -1 rows") {
		t.Errorf("%d rows, %v", n, err)
	}
}
