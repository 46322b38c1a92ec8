package data

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/data/picture"
	"drun/starlib/data/table"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Description says what a file holds, for drun data.
type Description struct {
	File    string       `json:"file"`
	Format  string       `json:"format"`
	Bytes   int64        `json:"bytes"`
	Rows    *int64       `json:"rows"`    // rows of a table, lines of a text, or files of an archive; nil for other files
	Columns []ColumnInfo `json:"columns"` // of a table
	Tensors []TensorInfo `json:"tensors"` // of arrays and pictures
	First   []any        `json:"first"`   // the first rows: lists of cells, or texts
}

// ColumnInfo is a column of a table; Type is bool, int64, float64, text, any or empty.
type ColumnInfo struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Missing int    `json:"missing"`
	Time    string `json:"time,omitempty"` // the file's type of a date or time, whose cells are microseconds
}

// TensorInfo is an array as stored in the file.
type TensorInfo struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

const firstRows = 5

// largestDescribed bounds the cells of a table that is described.
const largestDescribed = 4 << 30

// Describe reads a file and says what it holds.
func Describe(path string) (_ *Description, err error) {
	defer try.Caught(&err)
	dir, name := filepath.Split(path)
	files := try.To(starlib.OpenFiles(filepath.Clean(dir + ".")))
	files.Largest = largestDescribed
	f := try.To(files.Open(name))
	d := &Description{File: path, Format: formatOf(name), Bytes: f.Size(), Columns: []ColumnInfo{}, Tensors: []TensorInfo{}, First: []any{}}
	f.Close()
	try.Ok(d.read(files, name))
	return d, nil
}

// HasColumns reports, by its name, whether a file is Parquet or Arrow: the libraries that read these trust their input.
func HasColumns(path string) bool { return table.IsColumns(formatOf(path)) }

func (d *Description) read(files *starlib.Files, name string) (err error) {
	defer try.Caught(&err)
	ctx := tensor.NewContext()
	describe := func(name string, a *array) {
		d.Tensors = append(d.Tensors, TensorInfo{name, a.kind.name, append([]int{}, a.shape...)})
	}
	single := func(parse func([]byte) (*array, error)) error {
		a, err := read(files, ctx, name, func(_ *tensor.Context, content []byte) (*array, error) { return parse(content) })
		if err == nil {
			describe("", a)
		}
		return err
	}
	switch d.Format {
	case "safetensors":
		arrays, err := read(files, ctx, name, func(_ *tensor.Context, content []byte) ([]named, error) { return parseSafetensors(content) })
		for i := range arrays {
			describe(arrays[i].name, &arrays[i].array)
		}
		return err
	case "npz":
		tensors := try.To(read(files, ctx, name, parseNPZ))
		for _, item := range tensors.Items() {
			t := item[1].(*startensor.Value).Tensor()
			d.Tensors = append(d.Tensors, TensorInfo{string(item[0].(starlark.String)), t.DType().String(), append([]int{}, t.Shape()...)})
		}
		return nil
	case "npy":
		return single(parseNPY)
	case "png", "jpg", "jpeg":
		p, _, err := readPicture(files, name, picture.Unchanged)
		if err == nil {
			d.Tensors = append(d.Tensors, TensorInfo{"", "uint8", []int{p.Channels, p.Height, p.Width}})
		}
		return err
	case "tar", "tgz":
		return d.archive(files, name)
	}
	if named := idxName.MatchString(name); named || strings.Contains(name, "idx") {
		if err := single(parseIDX); err == nil || named {
			d.Format = "idx"
			return err
		}
	}
	if table.IsColumns(d.Format) {
		return d.columns(files, name)
	}
	if slices.Contains([]string{"csv", "jsonl", "tsv"}, d.Format) && !isText(name) {
		return d.survey(files, name)
	}
	return d.text(files, name)
}

// idxName matches the names of MNIST's files, and others that are idx by their name.
var idxName = regexp.MustCompile(`idx[0-9]-ubyte|\.idx(\.gz|\.zst)?$`)

// survey describes a file of separated values or of JSON lines, however large it is.
func (d *Description) survey(files *starlib.Files, name string) (err error) {
	defer try.Caught(&err)
	in, _, closer := try.To3(open(files, name))
	defer closer.Close()
	var o table.Options
	if d.Format == "tsv" {
		o.Delimiter = '\t'
	}
	read := func() (*table.Survey, error) { return o.SurveyCSV(in, firstRows) }
	if d.Format == "jsonl" {
		read = func() (*table.Survey, error) { return table.SurveyJSONLines(in, firstRows, files.Largest) }
	}
	s, err := read()
	try.FailIf(err != nil, "%s: %w", name, err)
	rows := int64(s.Rows)
	d.Rows = &rows
	for k, column := range s.Names {
		d.Columns = append(d.Columns, ColumnInfo{Name: column, Type: s.Kinds[k].String(), Missing: s.Missing[k]})
	}
	for _, row := range s.First {
		for k := range row {
			row[k] = shown(row[k])
		}
		d.First = append(d.First, row)
	}
	return nil
}

// columns describes a file of columns, including those that cannot be read.
func (d *Description) columns(files *starlib.Files, name string) (err error) {
	defer try.Caught(&err)
	var fields []table.Field
	try.Ok(withColumns(files, name, d.Format, []string{}, func(r table.Columns, _ *starlib.File) error {
		fields = r.Fields()
		return nil
	}))
	var wanted []string
	for _, f := range fields {
		if !f.Refused {
			wanted = append(wanted, f.Name)
		}
	}
	t := &table.Table{}
	if len(wanted) > 0 {
		t = try.To(readColumns(files, name, d.Format, table.Options{Columns: wanted, Largest: files.Largest}))
	}
	d.table(t, fields)
	return nil
}

// timeType matches what Arrow and Parquet call dates, times and durations.
var timeType = regexp.MustCompile(`(?i)date|time|duration`)

// table describes the fields of a file; the table lacks those that cannot be read.
func (d *Description) table(t *table.Table, fields []table.Field) {
	rows := int64(t.Rows)
	d.Rows = &rows
	for range min(t.Rows, firstRows) {
		d.First = append(d.First, make([]any, len(fields)))
	}
	for k, f := range fields {
		c := t.Find(f.Name)
		if c == nil {
			d.Columns = append(d.Columns, ColumnInfo{Name: f.Name, Type: f.Type + ", not supported"})
			continue
		}
		missing := 0
		for i := range c.Len() {
			if c.IsMissing(i) {
				missing++
			}
		}
		info := ColumnInfo{Name: c.Name, Type: c.Kind.String(), Missing: missing}
		if c.Kind == table.Int && timeType.MatchString(f.Type) {
			info.Time = f.Type
		}
		d.Columns = append(d.Columns, info)
		for i, row := range d.First {
			row.([]any)[k] = shown(c.Cell(i))
		}
	}
}

// shown returns a cell as a JSON value.
func shown(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	case string:
		return shorten(v)
	case []byte, []any, table.Object:
		return shorten(plainValue(v).String())
	}
	return v
}

// archive lists the files of a tar file.
func (d *Description) archive(files *starlib.Files, name string) (err error) {
	defer try.Caught(&err)
	d.Format = "tar"
	in, _, closer := try.To3(open(files, name))
	defer closer.Close()
	var n int64
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if err == io.EOF {
			d.Rows = &n
			return nil
		}
		try.FailIf(err != nil, "%s: after %d files: the tar data is corrupt or truncated: %w", name, n, err)
		if n++; n <= firstRows {
			d.First = append(d.First, []any{shorten(h.Name), h.Size})
		}
	}
}

// text counts the lines of a text file; any other file has no rows.
func (d *Description) text(files *starlib.Files, name string) (err error) {
	defer try.Caught(&err)
	in, _, closer := try.To3(open(files, name))
	defer closer.Close()
	var n int64
	notText := errors.New("")
	d.Format = "text"
	err = table.Lines(in, func(_ int, line []byte) error {
		if !utf8.Valid(line) {
			return notText
		}
		if n++; n <= firstRows {
			d.First = append(d.First, shorten(string(line)))
		}
		return nil
	})
	if errors.Is(err, notText) {
		d.Format, d.First = "bytes", []any{}
		return nil
	}
	try.FailIf(err != nil, "%s: %w", name, err)
	d.Rows = &n
	return nil
}
