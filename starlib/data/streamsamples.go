package data

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/data/picture"
	"drun/starlib/data/table"
)

// maxMember bounds a file in a tar file, and a sample made of several.
const maxMember = 256 << 20

// tar reads samples, each made of the files with one name and different extensions: a.png and a.cls are a sample. Their order is that
// of the archive.
func (r *reading) tar(name string, in io.Reader, f *starlib.File, from mark) (mark, error) {
	counted := &counter{Reader: in, n: from.offset}
	archive := tar.NewReader(counted)
	number := from.number
	at := from.offset
	var sample table.Object
	var key string
	begin, total := at, 0
	fail := func(err error) (mark, error) { return from, fmt.Errorf("%s: byte %d: %w", name, at, err) }
	flush := func(end int64, report func()) error {
		c := &chunk{next: mark{from.file, end, number}, report: report}
		if sample != nil {
			if int(number%int64(r.size)) == r.rank {
				fields := append(table.Object{{Name: "__key__", Value: key}}, sample...)
				rec := record{mark: mark{from.file, begin, number}, value: fields}
				c.records, c.size = []record{rec}, total+pixels(sample)
				c.parse = func(*chunk) error {
					for i := range fields {
						if err := decodeMember(&fields[i]); err != nil {
							return fmt.Errorf("%s: byte %d (record %d): %s: %w", name, rec.offset, rec.number, oneLine(fields[i].Name), err)
						}
					}
					return nil
				}
			}
			number++
			c.next.number = number
		}
		sample, total = nil, 0
		return r.send(c)
	}
	for {
		h, err := archive.Next()
		if err == io.EOF {
			err := flush(at, f.Report)
			return mark{from.file, at, number}, err
		}
		if err != nil {
			return fail(fmt.Errorf("the tar data is corrupt or truncated: %w", err))
		}
		if h.Typeflag == tar.TypeReg {
			dir, base := path.Split(h.Name)
			stem, ext, _ := strings.Cut(base, ".")
			ext = strings.ToLower(ext)
			if dir+stem != key || sample == nil {
				if sample != nil {
					if err := flush(at, nil); err != nil {
						return from, err
					}
				}
				key, begin = dir+stem, at
			}
			if h.Size > maxMember || total+int(h.Size) > maxMember {
				return fail(fmt.Errorf("%s: %d bytes: a sample may have at most %d", oneLine(h.Name), h.Size, maxMember))
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				return fail(fmt.Errorf("%s: truncated: %w", oneLine(h.Name), err))
			}
			for _, m := range sample {
				if m.Name == ext {
					return fail(fmt.Errorf("%s appears twice", oneLine(h.Name)))
				}
			}
			total += len(content)
			sample = append(sample, table.Member{Name: ext, Value: content})
		}
		at = (counted.n + 511) / 512 * 512
	}
}

// pixels is how many bytes the pictures of a sample take once decoded.
func pixels(sample table.Object) (n int) {
	for _, m := range sample {
		if content, ok := m.Value.([]byte); ok && isPicture(m.Name) {
			if info, err := picture.Describe(bytes.NewReader(content)); err == nil && info.Width <= picture.MaxPixels/max(info.Height, 1) {
				n += 3 * info.Width * info.Height
			}
		}
	}
	return n
}

// ending returns the last part of a name.
func ending(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func isPicture(name string) bool {
	return slices.Contains([]string{"png", "jpg", "jpeg"}, ending(name))
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// decodeMember makes a value from a file according to its ending.
func decodeMember(m *table.Member) (err error) {
	content, ok := m.Value.([]byte)
	if !ok {
		return nil
	}
	if isPicture(m.Name) {
		m.Value, err = picture.Decode(content, picture.RGB)
		return err
	}
	switch ending(m.Name) {
	case "txt":
		m.Value = string(content)
	case "json":
		m.Value, err = table.ParseJSON(content)
	case "cls", "id", "index":
		m.Value, err = strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	case "npy":
		m.Value, err = parseNPY(content)
	}
	return err
}

// columns reads a file of columns from a mark to its end, and returns the mark after its last row.
func (r *reading) columns(name string, from mark) (end mark, err error) {
	wanted := r.s.columns
	if label, named := starlark.AsString(r.s.label); named && wanted != nil {
		wanted = append(wanted[:len(wanted):len(wanted)], label)
	}
	end = from
	err = withColumns(r.s.files, name, r.s.format, wanted, func(in table.Columns, f *starlib.File) (err error) {
		defer try.Caught(&err)
		try.Ok(in.Seek(table.Place(from.offset)))
		for {
			t, err := in.Next(chunkRecords * min(r.size, 16))
			if err == io.EOF {
				if from.offset == 0 {
					try.Ok(f.Finish())
				}
				return r.send(&chunk{next: end, report: f.Report})
			}
			if err != nil {
				return err
			}
			label := try.To(r.s.labelOf(t))
			first := in.Place() - table.Place(t.Rows)
			c := &chunk{}
			var rows []int
			for i := range t.Rows {
				if number := end.number + int64(i); int(number%int64(r.size)) == r.rank {
					c.records = append(c.records, record{mark: mark{from.file, int64(first) + int64(i), number}})
					rows = append(rows, i)
				}
			}
			c.parse = func(c *chunk) error {
				for k, i := range rows {
					if err := r.s.row(t, i, label, &c.records[k]); err != nil {
						at := first + table.Place(i)
						return fmt.Errorf("%s: batch %d, row %d (record %d): %w", name, at.Batch(), at.Row(), c.records[k].number, err)
					}
				}
				return nil
			}
			end = mark{from.file, int64(in.Place()), end.number + int64(t.Rows)}
			c.next = end
			try.Ok(r.send(c))
		}
	})
	return end, err
}

// labelOf finds the column of the labels; -1: there is none.
func (s *Stream) labelOf(t *table.Table) (int, error) {
	label, named := starlark.AsString(s.label)
	if !named {
		return -1, nil
	}
	i := slices.Index(t.Names(), label)
	if i < 0 {
		return 0, table.NoColumn(label, t.Names())
	}
	return i, nil
}

// row makes a record from a row: its cells by name or, with a label, numbers.
func (s *Stream) row(t *table.Table, i, label int, r *record) error {
	if label < 0 {
		r.value = t.Row(i)
		return nil
	}
	r.x = make([]float32, 0, len(t.Columns)-1)
	for k, c := range t.Columns {
		var v float64
		switch cell := c.Cell(i).(type) {
		case nil:
			return fmt.Errorf("column %q: the cell is missing", shorten(c.Name))
		case bool:
			if cell {
				v = 1
			}
		case int64:
			if v = float64(cell); k == label {
				r.class = cell
			}
		case float64:
			v = cell
		default:
			return fmt.Errorf("column %q holds %s, which are not numbers: without label, samples are dicts, and columns selects what they hold", shorten(c.Name), c.Kind)
		}
		if k == label {
			if r.y = v; s.whole && c.Kind != table.Int {
				if c.Kind == table.Float && (v != math.Trunc(v) || math.Abs(v) > 1<<53) || math.IsNaN(v) {
					return fmt.Errorf("column %q: the label %v is not a 64-bit integer; label_dtype = \"float32\" accepts it", shorten(c.Name), v)
				}
				r.class = int64(v)
			}
			continue
		}
		if single := float32(v); math.IsInf(float64(single), 0) && !math.IsInf(v, 0) {
			return fmt.Errorf("column %q: %v does not fit float32", shorten(c.Name), v)
		}
		r.x = append(r.x, float32(v))
	}
	return nil
}

// numeric reports whether samples are rows of numbers, x or (x, y).
func (s *Stream) numeric() bool {
	return s.format == "csv" || table.IsColumns(s.format) && s.label != starlark.None
}
