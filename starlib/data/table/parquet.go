package table

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// parquetReader reads a Parquet file: a row group after the other, of which it has the values of each leaf column as a
// sequence, with the levels that say to which list and row each belongs.
type parquetReader struct {
	in     Random
	file   *parquet.File
	fields []Field
	nodes  []*node // of the columns
	leaves int
	wanted []int
	place  Place
	opened int // the row group whose leaves are open; -1: none
	pages  int // bytes that their pages may take
}

// node is a column of a file, or what a column has in it.
type node struct {
	name     string
	kind     string // as the file names the type
	def, rep int    // the levels at which it is there, and at which it repeats
	optional bool
	repeated bool
	list     bool // it stands for its only child, which is repeated
	children []*node
	first    *leaf // the first leaf beneath it, or its own
	leaf     *leaf // nil of a group
	problem  bool
	cells    Kind
}

// leaf is a sequence of values.
type leaf struct {
	path    string
	index   int
	value   func(parquet.Value) (any, error)
	pages   parquet.Pages
	page    parquet.Page
	values  parquet.ValueReader
	buffer  [128]parquet.Value
	n, next int
	end     bool
}

func openParquet(in Random, columns []string) (_ Reader, err error) {
	r := &parquetReader{in: in, opened: -1}
	if err := r.footer(); err != nil {
		return nil, err
	}
	err = guarded(func() error {
		file, err := parquet.OpenFile(in, in.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		r.file = file
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the footer is garbled: %w", err)
	}
	if err := r.schema(); err != nil {
		return nil, err
	}
	if r.wanted, err = choose(r.fields, columns); err != nil {
		return nil, err
	}
	return r, nil
}

// footer looks at the file's description before the library reads it.
func (r *parquetReader) footer() error {
	size := r.in.Size()
	var head, tail [8]byte
	if size < 12 {
		return errors.New("not a Parquet file: too short")
	}
	if _, err := r.in.ReadAt(head[:4], 0); err != nil {
		return err
	}
	if _, err := r.in.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	switch {
	case string(head[:4]) == "PARE" || string(tail[4:]) == "PARE":
		return errors.New("the file is encrypted, which is not supported")
	case string(head[:4]) != "PAR1":
		return errors.New("not a Parquet file: it does not begin with PAR1")
	case string(tail[4:]) != "PAR1":
		return errors.New("truncated: it does not end with PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if n > size-12 {
		return fmt.Errorf("the footer of %d bytes does not fit into the file", n)
	}
	if n > maxMetadata {
		return fmt.Errorf("the footer has %d bytes, and may have %d", n, maxMetadata)
	}
	footer := make([]byte, n)
	if _, err := r.in.ReadAt(footer, size-8-n); err != nil {
		return err
	}
	if _, err := skim(footer, nil); err != nil {
		return fmt.Errorf("the footer is garbled: %w", err)
	}
	var description format.FileMetaData
	err := guarded(func() error { return thrift.Unmarshal(new(thrift.CompactProtocol), footer, &description) })
	if err != nil {
		return fmt.Errorf("the footer is garbled: %w", err)
	}
	// The library goes down the schema as deep as it is.
	if len(description.Schema) > maxFields {
		return fmt.Errorf("the schema has %d fields, and may have %d", len(description.Schema), maxFields)
	}
	at := 0
	if err := depth(description.Schema, &at, 0); err != nil {
		return err
	}
	if at != len(description.Schema) {
		return errors.New("the schema is garbled: a field is in no group")
	}
	for i, g := range description.RowGroups {
		if g.NumRows < 0 || g.NumRows > maxRows {
			return fmt.Errorf("row group %d has %d rows, and may have %d", i, g.NumRows, maxRows)
		}
	}
	return nil
}

// depth goes through the fields of a group.
func depth(schema []format.SchemaElement, at *int, deep int) error {
	if *at >= len(schema) {
		return errors.New("the schema is garbled: it ends early")
	}
	e := schema[*at]
	*at++
	if deep > MaxDepth {
		return fmt.Errorf("the schema is nested more than %d deep", MaxDepth)
	}
	for range max(0, e.NumChildren.V) {
		if err := depth(schema, at, deep+1); err != nil {
			return err
		}
	}
	return nil
}

// schema makes the nodes.
func (r *parquetReader) schema() error {
	schema := r.file.Metadata().Schema
	at := 1
	for range max(0, schema[0].NumChildren.V) {
		n, err := r.node(schema, &at, "", 0, 0)
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
		r.fields = append(r.fields, Field{Name: n.name, Type: n.kind, Kind: n.cells, Refused: n.problem})
	}
	for i, g := range r.file.Metadata().RowGroups {
		if len(g.Columns) != r.leaves {
			return fmt.Errorf("row group %d has %d columns, and the schema %d", i, len(g.Columns), r.leaves)
		}
	}
	return nil
}

func (r *parquetReader) node(schema []format.SchemaElement, at *int, path string, def, rep int) (*node, error) {
	e := &schema[*at]
	*at++
	n := &node{name: e.Name, def: def, rep: rep, cells: Any}
	switch e.RepetitionType.V {
	case format.Optional:
		n.optional = true
		n.def++
	case format.Repeated:
		n.repeated = true
		n.def++
		n.rep++
	}
	if path != "" {
		path += "."
	}
	path += e.Name
	if e.NumChildren.V > 0 {
		n.kind = "group"
		for range e.NumChildren.V {
			child, err := r.node(schema, at, path, n.def, n.rep)
			if err != nil {
				return nil, err
			}
			if child.problem && !n.problem {
				n.problem, n.kind = true, child.kind
			}
			n.children = append(n.children, child)
		}
		n.first = n.children[0].first
		switch e.LogicalType.Value.(type) {
		case *format.VariantType:
			n.problem, n.kind = true, "VARIANT"
		case *format.ListType, *format.MapType:
			n.list = true
		}
		if t := e.ConvertedType; t.Valid && (t.V == deprecated.List || t.V == deprecated.Map || t.V == deprecated.MapKeyValue) {
			n.list = true
		}
		if n.list = n.list && len(n.children) == 1 && n.children[0].repeated; n.list && !n.problem {
			n.kind = "list"
		}
		return n, nil
	}
	if !e.Type.Valid {
		return nil, fmt.Errorf("column %s has neither a type nor fields", short(path))
	}
	n.leaf = &leaf{path: path, index: r.leaves}
	n.first = n.leaf
	r.leaves++
	n.kind, n.leaf.value = leafType(e)
	if n.problem = n.leaf.value == nil; !n.problem && !n.repeated {
		n.cells = leafKind(e)
	}
	return n, nil
}

// leafKind is what a leaf's cells are.
func leafKind(e *format.SchemaElement) Kind {
	_, value := leafType(e)
	if _, isNull := e.LogicalType.Value.(*format.NullType); isNull {
		return Empty
	}
	switch example, _ := value(zeroOf(e)); example.(type) {
	case bool:
		return Bool
	case int64:
		return Int
	case float64:
		return Float
	case string:
		return Text
	}
	return Any
}

// zeroOf is a value of a leaf's physical type.
func zeroOf(e *format.SchemaElement) parquet.Value {
	switch e.Type.V {
	case format.Boolean:
		return parquet.BooleanValue(false)
	case format.Int32:
		return parquet.Int32Value(0)
	case format.Int64:
		return parquet.Int64Value(0)
	case format.Int96:
		return parquet.Int96Value(deprecated.Int96{0, 0, julianEpoch})
	case format.Float:
		return parquet.FloatValue(0)
	case format.Double:
		return parquet.DoubleValue(0)
	case format.FixedLenByteArray:
		return parquet.FixedLenByteArrayValue(make([]byte, max(0, min(int(e.TypeLength.V), 16))))
	}
	return parquet.ByteArrayValue(nil)
}

// julianEpoch is 1970-01-01 as a Julian day, from which Int96 counts.
const julianEpoch = 2440588

// leafType is the name of a leaf's type and what makes a cell of its values; nil if the type is not supported.
func leafType(e *format.SchemaElement) (string, func(parquet.Value) (any, error)) {
	physical := e.Type.V
	name := physical.String()
	logical := e.LogicalType.Value
	if logical != nil {
		name = logical.String()
	} else if e.ConvertedType.Valid {
		name = fmt.Sprintf("%s of converted type %d", physical, e.ConvertedType.V)
	}
	whole := physical == format.Int32 || physical == format.Int64
	integer := func(v parquet.Value) int64 {
		if physical == format.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	plain := func(v parquet.Value) (any, error) { return integer(v), nil }
	time := func(unit int64) func(v parquet.Value) (any, error) {
		if !whole {
			return nil
		}
		return func(v parquet.Value) (any, error) { return micros(integer(v), unit) }
	}
	unitOf := func(u format.TimeUnit) func(v parquet.Value) (any, error) {
		switch u.Value.(type) {
		case *format.MilliSeconds:
			return time(perMilli)
		case *format.MicroSeconds:
			return time(perMicro)
		case *format.NanoSeconds:
			return time(perNano)
		}
		return nil
	}
	text := func(v parquet.Value) (any, error) { return string(v.ByteArray()), nil }
	binaries := func(v parquet.Value) (any, error) { return bytes.Clone(v.ByteArray()), nil }
	decimals := func(scale int32) func(v parquet.Value) (any, error) {
		switch {
		case scale < -1000 || scale > 1000:
			return nil
		case whole:
			return func(v parquet.Value) (any, error) { return decimal(big.NewInt(integer(v)), scale) }
		case physical == format.ByteArray || physical == format.FixedLenByteArray:
			return func(v parquet.Value) (any, error) { return decimal(signed(v.ByteArray()), scale) }
		}
		return nil
	}
	wide := func(bits int, positive bool) func(v parquet.Value) (any, error) {
		switch {
		case !whole:
			return nil
		case positive && bits == 64:
			return func(v parquet.Value) (any, error) { return unsigned(uint64(v.Int64())) }
		case positive && physical == format.Int32:
			return func(v parquet.Value) (any, error) { return int64(uint32(v.Int32())), nil }
		}
		return plain
	}
	strings := physical == format.ByteArray
	switch t := logical.(type) {
	case nil:
		if !e.ConvertedType.Valid {
			break
		}
		switch c := e.ConvertedType.V; c {
		case deprecated.UTF8, deprecated.Enum, deprecated.Json:
			if strings {
				return name, text
			}
			return name, nil
		case deprecated.Decimal:
			return name, decimals(e.Scale.V)
		case deprecated.Date:
			return name, time(perDay)
		case deprecated.TimeMillis, deprecated.TimestampMillis:
			return name, time(perMilli)
		case deprecated.TimeMicros, deprecated.TimestampMicros:
			return name, time(perMicro)
		case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32:
			return name, wide(32, true)
		case deprecated.Uint64:
			return name, wide(64, true)
		case deprecated.Int8, deprecated.Int16, deprecated.Int32, deprecated.Int64:
			return name, wide(64, false)
		case deprecated.Bson:
		default:
			return name, nil
		}
	case *format.StringType, *format.EnumType, *format.JsonType:
		if strings {
			return name, text
		}
		return name, nil
	case *format.DecimalType:
		return name, decimals(t.Scale)
	case *format.DateType:
		return name, time(perDay)
	case *format.TimeType:
		return name, unitOf(t.Unit)
	case *format.TimestampType:
		return name, unitOf(t.Unit)
	case *format.IntType:
		return name, wide(int(t.BitWidth), !t.IsSigned)
	case *format.Float16Type:
		if physical != format.FixedLenByteArray || e.TypeLength.V != 2 {
			return name, nil
		}
		return name, func(v parquet.Value) (any, error) { return half(binary.LittleEndian.Uint16(v.ByteArray())), nil }
	case *format.NullType:
		return name, func(parquet.Value) (any, error) {
			return nil, errors.New("a value in a column of nulls")
		}
	case *format.UUIDType, *format.BsonType, *format.GeometryType, *format.GeographyType: // bytes
	default:
		return name, nil
	}
	switch physical {
	case format.Boolean:
		return name, func(v parquet.Value) (any, error) { return v.Boolean(), nil }
	case format.Int32, format.Int64:
		return name, plain
	case format.Float:
		return name, func(v parquet.Value) (any, error) { return float64(v.Float()), nil }
	case format.Double:
		return name, func(v parquet.Value) (any, error) { return v.Double(), nil }
	case format.ByteArray, format.FixedLenByteArray:
		return name, binaries
	case format.Int96: // a time: nanoseconds of a day, and the day
		return name, func(v parquet.Value) (any, error) {
			t := v.Int96()
			nanos := int64(t[1])<<32 | int64(t[0])
			if nanos < 0 || nanos%1000 != 0 {
				return nil, fmt.Errorf("the time %d ns is no whole number of microseconds", nanos)
			}
			return (int64(int32(t[2]))-julianEpoch)*perDay + nanos/1000, nil
		}
	}
	return name, nil
}

// signed is an integer in two's complement, its highest byte first.
func signed(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

func (r *parquetReader) Fields() []Field { return r.fields }
func (r *parquetReader) Place() Place    { return r.place }

func (r *parquetReader) Close() {
	for _, i := range r.wanted {
		r.nodes[i].each(func(l *leaf) { l.close() })
	}
}

func (l *leaf) close() {
	parquet.Release(l.page)
	if l.pages != nil {
		l.pages.Close()
	}
	l.page, l.pages, l.values, l.n, l.next, l.end = nil, nil, nil, 0, 0, false
}

// each visits the leaves of a node.
func (n *node) each(visit func(*leaf)) {
	if n.leaf != nil {
		visit(n.leaf)
	}
	for _, c := range n.children {
		c.each(visit)
	}
}

func (r *parquetReader) Seek(p Place) error {
	groups := r.file.Metadata().RowGroups
	if b := p.Batch(); b > len(groups) || b == len(groups) && p.Row() > 0 || b < len(groups) && int64(p.Row()) > groups[b].NumRows {
		return fmt.Errorf("it has no row %d of row group %d, where the checkpoint was: it has changed", p.Row(), p.Batch())
	}
	r.place = NewPlace(p.Batch(), 0)
	r.opened = -1
	for r.place < p { // the rows before it are read: nothing in the file can be trusted to say where it begins
		if _, err := r.rows(min(p.Row()-r.place.Row(), 4096)); err != nil {
			return err
		}
	}
	return nil
}

func (r *parquetReader) Next(limit int) (*Table, error) {
	groups := r.file.Metadata().RowGroups
	for {
		g := r.place.Batch()
		if g >= len(groups) {
			return newTable(r.fields, r.wanted), io.EOF
		}
		if left := int(groups[g].NumRows) - r.place.Row(); left > 0 {
			return r.rows(min(limit, left))
		}
		if err := r.finish(); err != nil {
			return nil, err
		}
		r.place = NewPlace(g+1, 0)
	}
}

// finish is an error if a column of the row group has values that belong to no row.
func (r *parquetReader) finish() error {
	g := r.place.Batch()
	if r.opened != g {
		return nil
	}
	for _, i := range r.wanted {
		n := r.nodes[i]
		var more bool
		if err := guarded(func() (err error) { _, more, err = n.first.peek(); return err }); err != nil {
			return fmt.Errorf("row group %d, column %s: %w", g, short(n.name), err)
		}
		if more {
			return fmt.Errorf("row group %d, column %s: it has more values than the %d rows", g, short(n.name), r.place.Row())
		}
	}
	return nil
}

// rows reads rows of the row group at the place.
func (r *parquetReader) rows(count int) (*Table, error) {
	g := r.place.Batch()
	if r.opened != g {
		r.Close()
		r.opened, r.pages = g, 0
		for _, i := range r.wanted {
			var err error
			r.nodes[i].each(func(l *leaf) {
				if err == nil {
					if err = r.open(l, g); err != nil {
						err = fmt.Errorf("row group %d, column %s: %w", g, short(l.path), err)
					}
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	t := newTable(r.fields, r.wanted)
	left := newBudget(chunkBudget)
	for k, i := range r.wanted {
		n, c := r.nodes[i], t.Columns[k]
		row := 0
		err := guarded(func() error {
			for ; row < count; row++ {
				if v, ok, err := n.first.peek(); err != nil {
					return err
				} else if !ok {
					return errors.New("it has fewer values than rows")
				} else if v.RepetitionLevel() != 0 {
					return errors.New("a row begins within a list")
				}
				v, err := n.read(left)
				if err == nil {
					err = c.Append(v)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("row group %d, row %d, column %s: %w", g, r.place.Row()+row, short(n.name), err)
		}
	}
	t.Rows = count
	r.place += Place(count)
	return t, nil
}

// read assembles the next value of a node of its leaves' values.
func (n *node) read(left *budget) (any, error) {
	v, ok, err := n.first.peek()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("it has fewer values than rows")
	}
	if n.repeated {
		list := []any{}
		if v.DefinitionLevel() < n.def {
			return list, n.skip()
		}
		for {
			element, err := n.body(left)
			if err != nil {
				return nil, err
			}
			if err := left.take(16); err != nil {
				return nil, err
			}
			list = append(list, element)
			v, ok, err := n.first.peek()
			if err != nil || !ok || v.RepetitionLevel() != n.rep {
				return list, err
			}
		}
	}
	if n.optional && v.DefinitionLevel() < n.def {
		return nil, n.skip()
	}
	return n.body(left)
}

// body is the value of a node that is there.
func (n *node) body(left *budget) (any, error) {
	switch {
	case n.leaf != nil:
		v, err := n.leaf.take()
		if err != nil {
			return nil, err
		}
		if v.IsNull() {
			return nil, errors.New("a null where there may be none")
		}
		if err := left.take(16 + len(bytesOf(v))); err != nil {
			return nil, err
		}
		return n.leaf.value(*v)
	case n.list:
		element := n.children[0]
		v, err := element.read(left)
		if err != nil || element.list || len(element.children) != 1 || element.name == "array" || element.name == n.name+"_tuple" {
			return v, err
		}
		list := v.([]any) // of groups with one field, which are that
		for i := range list {
			list[i] = list[i].(Object)[0].Value
		}
		return list, nil
	}
	object := make(Object, len(n.children))
	for i, c := range n.children {
		v, err := c.read(left)
		if err != nil {
			return nil, err
		}
		object[i] = Member{c.name, v}
	}
	return object, nil
}

func bytesOf(v *parquet.Value) []byte {
	if k := v.Kind(); k == parquet.ByteArray || k == parquet.FixedLenByteArray {
		return v.ByteArray()
	}
	return nil
}

// skip passes over what stands for a node that is missing: a value of each leaf.
func (n *node) skip() (err error) {
	n.each(func(l *leaf) {
		if err == nil {
			_, err = l.take()
		}
	})
	return err
}

// peek is the next value; false at the end of the row group.
func (l *leaf) peek() (*parquet.Value, bool, error) {
	for l.next == l.n {
		if l.end {
			return nil, false, nil
		}
		if l.values == nil {
			page, err := l.pages.ReadPage()
			if err == io.EOF {
				l.end = true
				return nil, false, nil
			}
			if err != nil {
				return nil, false, err
			}
			l.page, l.values = page, page.Values()
		}
		n, err := l.values.ReadValues(l.buffer[:])
		if err != nil && err != io.EOF {
			return nil, false, err
		}
		if l.n, l.next = n, 0; n == 0 {
			if err == nil {
				return nil, false, errors.New("a page without an end")
			}
			parquet.Release(l.page)
			l.page, l.values = nil, nil
		}
	}
	return &l.buffer[l.next], true, nil
}

func (l *leaf) take() (*parquet.Value, error) {
	v, ok, err := l.peek()
	if err == nil && !ok {
		err = errors.New("it has fewer values than rows")
	}
	l.next++
	return v, err
}

// open begins to read a leaf in a row group, once it is sure that its pages have the size that they should.
func (r *parquetReader) open(l *leaf, group int) error {
	chunk := &r.file.Metadata().RowGroups[group].Columns[l.index]
	if chunk.FilePath != "" {
		return errors.New("its data is in another file, which is not supported")
	}
	m := &chunk.MetaData
	begin := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		begin = m.DictionaryPageOffset
	}
	if begin < 4 || m.DataPageOffset < begin || m.TotalCompressedSize < 0 || m.TotalCompressedSize > r.in.Size() || begin > r.in.Size()-m.TotalCompressedSize {
		return fmt.Errorf("its data is not in the file: %d bytes at byte %d", m.TotalCompressedSize, begin)
	}
	most := 0
	for at, end := begin, begin+m.TotalCompressedSize; at < end; {
		next, takes, err := r.page(m.Codec, at, end)
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
		at, most = next, max(most, takes)
	}
	if r.pages += most; r.pages > maxPages {
		return fmt.Errorf("the pages of the columns up to here take %d bytes, and may take %d; columns names those that are wanted", r.pages, maxPages)
	}
	return guarded(func() error {
		l.pages = r.file.RowGroups()[group].ColumnChunks()[l.index].Pages()
		return nil
	})
}

// page looks at a page: where the next one begins, and how many bytes it takes in memory.
func (r *parquetReader) page(codec format.CompressionCodec, at, end int64) (next int64, takes int, err error) {
	var header []byte
	var size int
	var kind, packed, unpacked, count, levels int64
	plain := codec == format.Uncompressed
	for n := int64(512); ; n *= 8 {
		n = min(n, end-at)
		header = make([]byte, n)
		if _, err := r.in.ReadAt(header, at); err != nil && err != io.EOF {
			return 0, 0, err
		}
		kind, packed, unpacked, count, levels = -1, -1, -1, 0, 0
		size, err = skim(header, func(path [3]int, v int64) {
			switch path {
			case [3]int{1}:
				kind = v
			case [3]int{2}:
				unpacked = v
			case [3]int{3}:
				packed = v
			case [3]int{5, 1}, [3]int{7, 1}, [3]int{8, 1}:
				count = max(count, v)
			case [3]int{8, 5}, [3]int{8, 6}:
				levels += v
			case [3]int{8, 7}:
				plain = v == 0
			}
		})
		if err != errShort || n == end-at || n > 16<<20 { //nolint:errorlint // skim's own
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("a page's header is garbled: %w", err)
	}
	begin := at + int64(size)
	switch {
	case packed < 0 || packed > end-begin:
		return 0, 0, fmt.Errorf("a page of %d bytes does not fit into its column", packed)
	case unpacked < 0 || unpacked > maxPage || packed > maxPage:
		return 0, 0, fmt.Errorf("a page of %d bytes unpacks to %d, and may take %d", packed, unpacked, maxPage)
	case count < 0 || count > maxPage/4:
		return 0, 0, fmt.Errorf("a page of %d values, and may have %d", count, maxPage/4)
	}
	if !plain {
		at := begin
		if kind == int64(format.DataPageV2) {
			if levels < 0 || levels > packed || levels > unpacked {
				return 0, 0, fmt.Errorf("a page's levels of %d bytes do not fit into it", levels)
			}
			at, unpacked = at+levels, unpacked-levels
		}
		if err := r.unpacks(codec, at, begin+packed-at, unpacked); err != nil {
			return 0, 0, err
		}
	}
	return begin + packed, int(packed + unpacked + 12*count), nil
}

// unpacks is an error if a page unpacks to more than its header says: the library would take all the memory that it needs.
func (r *parquetReader) unpacks(codec format.CompressionCodec, at, packed, unpacked int64) error {
	in := io.NewSectionReader(r.in, at, packed)
	var out io.Reader
	switch codec {
	case format.Snappy:
		head := make([]byte, binary.MaxVarintLen64)
		n, _ := in.Read(head)
		if size, ok := binary.Uvarint(head[:n]); packed > 0 && (ok <= 0 || size > uint64(unpacked)) {
			return fmt.Errorf("a page says that it unpacks to %d bytes, and elsewhere to %d", unpacked, size)
		}
		return nil
	case format.Gzip:
		if packed > 0 && packed < maxPage/1032 { // deflate's best
			return nil
		}
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("a page's gzip data is garbled: %w", err)
		}
		out = z
	case format.Brotli:
		out = brotli.NewReader(in)
	case format.Zstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxPage/2), zstd.WithDecoderLowmem(true))
		if err != nil {
			return fmt.Errorf("a page's zstd data is garbled: %w", err)
		}
		defer z.Close()
		out = z
	case format.Lz4Raw: // of which the library takes any error for a lack of space
		content := make([]byte, packed)
		if _, err := io.ReadFull(in, content); err != nil {
			return err
		}
		if _, err := lz4.UncompressBlock(content, make([]byte, unpacked)); err != nil && packed > 0 {
			return fmt.Errorf("a page's LZ4 data is garbled, or unpacks to more than the %d bytes that it says", unpacked)
		}
		return nil
	default:
		return fmt.Errorf("its compression, %s, is not supported", codec)
	}
	n, err := io.CopyN(io.Discard, out, unpacked+1)
	if n > unpacked {
		return fmt.Errorf("a page unpacks to more than the %d bytes that it says", unpacked)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("a page's %s data is garbled: %w", codec, err)
	}
	return nil
}
