// Package records holds what a run records: one type for each thing, used all the way from the rank to the history.
//
// A field's name in JSON is also its column in the history, unless its db tag has another, or "-" for none. After a
// comma, the tag says how it is stored: micro (a time as microseconds since 1970 instead of text) or null (the zero
// value as NULL).
package records

import "reflect"

// Batch is what a rank records, a list for each kind. The rank fills it in, SetRank says whose it is, and
// history.Run.Write stores it. Kinds that are rows of one table name it in the table tag, and in the or tag what
// happens to a row that is there.
//
// The methods treat all fields alike, so a new kind needs nothing but its field.
type Batch struct {
	Ranks     []RankPlace `cbor:",omitempty" table:"ranks" or:"REPLACE"`
	Plugins   []Plugin    `cbor:",omitempty" table:"plugins" or:"REPLACE"`
	Usage     []Usage     `cbor:",omitempty" table:"rank_usage" or:"REPLACE"`
	DataFiles []DataFile  `cbor:",omitempty" table:"data_files" or:"IGNORE"`
	Tags      []string    `cbor:",omitempty" table:"tags" or:"IGNORE" db:"tag"`
	Notes     []Note      `cbor:",omitempty" table:"notes"`
	Artifacts []Artifact  `cbor:",omitempty"`
	Points    []Point     `cbor:",omitempty"`
	Updates   []Updates   `cbor:",omitempty" table:"updates" or:"REPLACE"`
	Marks     []Mark      `cbor:",omitempty" table:"step_marks" or:"REPLACE"`
}

// SetRank sets the rank and its attempt in all records that have them.
func (b *Batch) SetRank(rank, attempt int) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		list := v.Field(i)
		if list.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for name, n := range map[string]int{"Rank": rank, "Attempt": attempt} {
			if f, is := list.Type().Elem().FieldByName(name); is {
				for k := range list.Len() {
					list.Index(k).FieldByIndex(f.Index).SetInt(int64(n))
				}
			}
		}
	}
}

// Append adds the records of o.
func (b *Batch) Append(o *Batch) {
	to, from := reflect.ValueOf(b).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(reflect.AppendSlice(to.Field(i), from.Field(i)))
	}
}

// Size is the number of records, and the bytes of their texts and data.
func (b *Batch) Size() (n, bytes int) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		list := v.Field(i)
		n += list.Len()
		for k := range list.Len() {
			bytes += text(list.Index(k))
		}
	}
	return n, bytes
}

// text is how many bytes of text and data a record holds.
func text(v reflect.Value) (bytes int) {
	switch v.Kind() {
	case reflect.String, reflect.Slice:
		return v.Len()
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += text(v.Field(i))
		}
	}
	return bytes
}
