package history

import (
	"reflect"
	"testing"
)

// What may be NULL is read as its zero value, and a column of any of the types that records have is read into its field.
func TestZeroColumn(t *testing.T) {
	var record struct {
		N int
		F float64
		S string
		B bool
	}
	fields := reflect.ValueOf(&record).Elem()
	for i, values := range [][]any{{nil, int64(7)}, {nil, 2.5}, {nil, "text"}, {nil, int64(0), false, int64(1), true}} {
		for _, value := range values {
			if err := (zeroColumn{fields.Field(i)}).Scan(value); err != nil {
				t.Errorf("%v in %s: %v", value, fields.Type().Field(i).Name, err)
			}
		}
	}
	if record.N != 7 || record.F != 2.5 || record.S != "text" || !record.B {
		t.Errorf("%+v", record)
	}
	if err := (zeroColumn{fields.Field(3)}).Scan(int64(0)); err != nil || record.B {
		t.Errorf("0 is %v, %v", record.B, err)
	}
	for i, wrong := range []any{"x", "x", int64(1), "x"} {
		if err := (zeroColumn{fields.Field(i)}).Scan(wrong); err == nil {
			t.Errorf("%v is read into %s", wrong, fields.Type().Field(i).Name)
		}
	}
}
