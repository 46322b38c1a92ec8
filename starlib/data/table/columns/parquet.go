package columns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"drun/internal/try"
	"drun/starlib/data/table"
)

// parquetReader reads a Parquet file one row group after the other. A row group has the values of each leaf column as
// a sequence, with levels that say to which list and row each belongs.
type parquetReader struct {
	in     table.Random
	file   *parquet.File
	nodes  []*node // of the columns
	wanted []int
	group  int // that rows was last called for
	opened int // the row group whose leaves are open; -1: none
}

// node is a column of a file, or a field nested in one.
type node struct {
	name     string
	kind     string // as the file names the type
	def, rep int    // the levels from which it is present, and at which it repeats
	optional bool
	repeated bool
	list     bool // it stands for its only child, which is repeated
	children []*node
	first    *leaf // the first leaf below it, or its own
	leaf     *leaf // nil for a group
	problem  bool
	cells    table.Kind
}

func openParquet(in table.Random, _ io.Reader, packed bool, columns []string) (_ table.Columns, err error) {
	defer try.Caught(&err)
	try.FailIf(packed, "a Parquet file cannot be read through gzip or zstd: decompress it; its own pages may be compressed")
	r := &parquetReader{in: in, opened: -1}
	try.Ok(checkParquet(in))
	var fields []table.Field
	err = guarded(func() error {
		r.file, err = parquet.OpenFile(in, in.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return err
		}
		elements := []format.SchemaElement(r.file.Metadata().Schema[1:])
		for _, c := range r.file.Root().Columns() {
			n := newNode(c, &elements)
			r.nodes = append(r.nodes, n)
			fields = append(fields, table.Field{Name: n.name, Type: n.kind, Kind: n.cells, Refused: n.problem})
		}
		return nil
	})
	try.FailIf(err != nil, "the footer is corrupt: %.300v", err)
	r.wanted = try.To(table.Choose(fields, columns))
	return &reader{in: r, unit: "row group", fields: fields, wanted: r.wanted}, nil
}

// checkParquet returns a better error for files that the library would call corrupt, such as encrypted ones.
func checkParquet(in table.Random) (err error) {
	defer try.Caught(&err)
	head, tail := make([]byte, 4), make([]byte, 8)
	try.FailIf(in.Size() < 12, "not a Parquet file: too short")
	try.To(in.ReadAt(head, 0))
	try.To(in.ReadAt(tail, in.Size()-8))
	switch n := int64(binary.LittleEndian.Uint32(tail)); {
	case string(head) == "PARE" || string(tail[4:]) == "PARE":
		return errors.New("the file is encrypted, which is not supported")
	case string(head) != "PAR1":
		return errors.New("not a Parquet file: it does not begin with PAR1")
	case string(tail[4:]) != "PAR1":
		return errors.New("truncated: it does not end with PAR1")
	case n > in.Size()-12:
		return fmt.Errorf("the footer of %d bytes does not fit into the file", n)
	}
	return nil
}

// newNode makes a node from a column and the schema's elements, beginning with the column's own.
func newNode(c *parquet.Column, elements *[]format.SchemaElement) *node {
	e := (*elements)[0]
	*elements = (*elements)[1:]
	n := &node{name: c.Name(), def: c.MaxDefinitionLevel(), rep: c.MaxRepetitionLevel(), optional: c.Optional(), repeated: c.Repeated(), cells: table.Any}
	if c.Leaf() {
		n.leaf = &leaf{path: strings.Join(c.Path(), "."), index: c.Index(), def: n.def, rep: n.rep}
		if e.Type.V == format.FixedLenByteArray {
			n.leaf.length = int64(e.TypeLength.V)
		}
		n.first = n.leaf
		n.kind, n.cells, n.leaf.value = leafType(c, &e)
		if n.problem = n.leaf.value == nil; n.repeated {
			n.cells = table.Any
		}
		return n
	}
	n.kind = "group"
	for _, c := range c.Columns() {
		child := newNode(c, elements)
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
	return n
}

func (n *node) each(visit func(*leaf)) {
	if n.leaf != nil {
		visit(n.leaf)
	}
	for _, c := range n.children {
		c.each(visit)
	}
}

func (r *parquetReader) rewind() { r.opened = -1 }

func (r *parquetReader) close() {
	for _, i := range r.wanted {
		r.nodes[i].each(func(l *leaf) { l.close() })
	}
}

func (r *parquetReader) rows(group int) (int, error) {
	groups := r.file.Metadata().RowGroups
	switch r.group = group; {
	case group < len(groups) && uint64(groups[group].NumRows) > maxRows: // or less than none
		return 0, fmt.Errorf("row group %d has %d rows: at most %d are allowed", group, groups[group].NumRows, maxRows)
	case group < len(groups):
		return int(groups[group].NumRows), nil
	case group == len(groups):
		return 0, io.EOF
	}
	return 0, fmt.Errorf("it has no row group %d, where the checkpoint was: it has changed", group)
}

func (r *parquetReader) open() (err error) {
	if r.opened == r.group {
		return nil
	}
	r.close()
	r.opened = r.group
	for _, i := range r.wanted {
		r.nodes[i].each(func(l *leaf) {
			if err == nil {
				if err = r.openLeaf(l, r.group); err != nil {
					err = fmt.Errorf("column %s: %w", table.Short(l.path), err)
				}
			}
		})
	}
	return err
}

func (r *parquetReader) end() error {
	for _, i := range r.wanted {
		n := r.nodes[i]
		err := guarded(func() error {
			if r.opened != r.group {
				return nil
			}
			v, err := n.first.peek()
			if v != nil {
				err = fmt.Errorf("it has more values than the %d rows", r.file.Metadata().RowGroups[r.group].NumRows)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("column %s: %w", table.Short(n.name), err)
		}
	}
	return nil
}

func (r *parquetReader) cells(column int) func(row int) (any, error) {
	n := r.nodes[column]
	return func(int) (any, error) {
		if v, err := n.first.peek(); err == nil && v != nil && v.RepetitionLevel() != 0 {
			return nil, errors.New("a row begins within a list")
		}
		return n.read()
	}
}

// read assembles the next value of a node from its leaves' values.
func (n *node) read() (any, error) {
	v, err := n.first.peek()
	if err == nil && v == nil {
		err = errFewValues
	}
	if err != nil {
		return nil, err
	}
	if n.repeated {
		list := []any{}
		if v.DefinitionLevel() < n.def {
			return list, n.skip()
		}
		for {
			element, err := n.body()
			if err != nil {
				return nil, err
			}
			list = append(list, element)
			v, err := n.first.peek()
			if v == nil || v.RepetitionLevel() != n.rep {
				return list, err
			}
		}
	}
	if n.optional && v.DefinitionLevel() < n.def {
		return nil, n.skip()
	}
	return n.body()
}

// body returns the value of a node that is present.
func (n *node) body() (any, error) {
	switch {
	case n.leaf != nil:
		v, err := n.leaf.take()
		if err != nil {
			return nil, err
		}
		if v.IsNull() {
			return nil, errors.New("a null where there may be none")
		}
		return n.leaf.value(*v)
	case n.list:
		element := n.children[0]
		v, err := element.read()
		if err != nil || element.list || len(element.children) != 1 || element.name == "array" || element.name == n.name+"_tuple" {
			return v, err
		}
		list := v.([]any) // of groups with one field, which stand for that field
		for i := range list {
			list[i] = list[i].(table.Object)[0].Value
		}
		return list, nil
	}
	object := make(table.Object, len(n.children))
	for i, c := range n.children {
		v, err := c.read()
		if err != nil {
			return nil, err
		}
		object[i] = table.Member{Name: c.name, Value: v}
	}
	return object, nil
}

// skip skips what represents a missing node: one value of each leaf.
func (n *node) skip() (err error) {
	n.each(func(l *leaf) {
		if err == nil {
			_, err = l.take()
		}
	})
	return err
}
