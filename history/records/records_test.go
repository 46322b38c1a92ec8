package records

import (
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// fill sets everything in a value to something that is not zero, each to another one.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Struct:
		if at, is := v.Addr().Interface().(*time.Time); is {
			*at = time.Unix(int64(*n), 0).UTC()
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Uint8:
		v.SetUint(uint64(*n % 200))
	default:
		v.SetInt(int64(*n))
	}
}

func full() *Batch {
	b, n := &Batch{}, 0
	fill(reflect.ValueOf(b).Elem(), &n)
	return b
}

// Whatever kinds there are, each is appended, counted, given its rank and encoded.
func TestEveryKind(t *testing.T) {
	b, other := full(), full()
	b.Append(other)
	n, bytes := b.Size()
	kinds := reflect.ValueOf(b).Elem()
	for i := range kinds.NumField() {
		name, list, added := kinds.Type().Field(i).Name, kinds.Field(i), reflect.ValueOf(other).Elem().Field(i)
		if list.Len() != 4 {
			t.Errorf("%s: %d records after Append", name, list.Len())
			continue
		}
		if !reflect.DeepEqual(list.Slice(2, 4).Interface(), added.Interface()) {
			t.Errorf("%s: Append gave %v", name, list)
		}
	}
	if n != 4*kinds.NumField() || bytes < n/2 {
		t.Errorf("the size is %d records with %d bytes", n, bytes)
	}
	for i := range kinds.NumField() {
		only := &Batch{}
		reflect.ValueOf(only).Elem().Field(i).Set(kinds.Field(i))
		if n, _ := only.Size(); n != 4 {
			t.Errorf("%s: the size is %d records", kinds.Type().Field(i).Name, n)
		}
	}

	mode, err := cbor.EncOptions{Time: cbor.TimeRFC3339NanoUTC}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	data, err := mode.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	got := &Batch{}
	if err := cbor.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	for i := range kinds.NumField() {
		if back := reflect.ValueOf(got).Elem().Field(i); !reflect.DeepEqual(back.Interface(), kinds.Field(i).Interface()) {
			t.Errorf("%s: %v was encoded as %v", kinds.Type().Field(i).Name, kinds.Field(i), back)
		}
	}

	b.SetRank(77, 99)
	for i := range kinds.NumField() {
		for k := range kinds.Field(i).Len() {
			record := kinds.Field(i).Index(k)
			if record.Kind() != reflect.Struct {
				continue
			}
			for name, want := range map[string]int64{"Rank": 77, "Attempt": 99} {
				if f := record.FieldByName(name); f.IsValid() && f.Int() != want {
					t.Errorf("%s: %s is %d", kinds.Type().Field(i).Name, name, f.Int())
				}
			}
		}
	}
}
