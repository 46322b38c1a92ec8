package data

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"drun/starlib"
	"drun/starlib/data/picture"
	"drun/starlib/data/table"
)

// maxMember bounds a file in a tar file, and a sample made of several.
const maxMember = 256 << 20

// tar reads samples that are files of one name with different endings: a.png and a.cls are a sample. Their order is that
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

// ending is the last part of a name.
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
