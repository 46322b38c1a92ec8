package data

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"golang.org/x/sync/semaphore"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/data/table"
)

// Stream is a set of files, of any size, that are read record by record.
type Stream struct {
	starlib.Opaque
	files  *starlib.Files
	names  []string
	format string // csv, jsonl, text, tar, parquet or arrow
	comma  byte
	label  starlark.Value // the column of the labels; None
	whole  bool           // labels are integers
	buffer int            // how many samples a shuffle picks from
	print  int            // a checksum of the files' sizes and of both their ends, to notice that they have changed

	columns []string // the wanted columns of Parquet and Arrow; nil: all
}

var _ starlark.Value = (*Stream)(nil)

func (s *Stream) String() string {
	return fmt.Sprintf("<stream of %d %s files>", len(s.names), s.format)
}

var streamType = &starlib.Methods{Type: "Stream", Doc: "Files that data.loader reads record by record."}

// mark is a record's position: its file's number, where it begins in the decompressed file (in Parquet and Arrow, its
// table.Place), and its number in the epoch.
type mark struct{ file, offset, number int64 }

// record is one sample, parsed.
type record struct {
	mark
	x     []float32 // of CSV
	y     float64
	class int64
	value any // of other formats: a string, a JSON value, a row's cells; of tar, an Object of int64, string, JSON values, []byte, *picture.Picture and *array
}

// chunk is a run of consecutive records, of which it holds only this rank's.
type chunk struct {
	raw     [][]byte // the records as in the file; for tar, already parsed
	records []record
	parse   func(c *chunk) error
	size    int    // bytes
	next    mark   // of the record after the chunk
	report  func() // after the last chunk of a file
	err     error
	done    chan struct{}
}

// The largest number of records in a chunk, and about its size in bytes.
const (
	chunkRecords = 512
	chunkBytes   = 1 << 20
)

// maxAhead bounds the bytes of the chunks in the queue, unless a single one is larger: large samples stay in the file.
const maxAhead = 256 << 20

// reading is a pass over a stream's files, on threads of its own.
type reading struct {
	s          *Stream
	order      []int // of the files in this epoch
	rank, size int
	chunks     chan *chunk
	slots      chan struct{}       // one for each thread
	room       *semaphore.Weighted // bytes in the queue
	ctx        context.Context     // ends when no more chunks will be taken
	cancel     context.CancelFunc
}

// read starts reading at a mark, and parses on this many threads.
func (s *Stream) read(order []int, from mark, rank, size, threads int) *reading {
	ahead := 8
	if s.format == "tar" { // chunks of one sample
		ahead = 64
	}
	r := &reading{s: s, order: order, rank: rank, size: size, chunks: make(chan *chunk, ahead),
		slots: make(chan struct{}, threads), room: semaphore.NewWeighted(maxAhead)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(r.chunks)
		for next := from; next.file < int64(len(order)); next = (mark{next.file + 1, 0, next.number}) {
			var err error
			if next, err = r.file(next); err != nil {
				_ = r.send(&chunk{err: err})
				return
			}
		}
	}()
	return r
}

func (r *reading) stop() {
	r.cancel()
	for range r.chunks { // until the reader has noticed
	}
}

// take returns the next chunk, parsed; false after the last.
func (r *reading) take() (*chunk, bool) {
	c, ok := <-r.chunks
	if ok {
		<-c.done
		r.room.Release(c.room())
	}
	return c, ok
}

func (c *chunk) room() int64 { return int64(min(c.size, maxAhead)) }

// send parses a chunk on its own thread, and queues it.
func (r *reading) send(c *chunk) error {
	c.done = make(chan struct{})
	if err := r.room.Acquire(r.ctx, c.room()); err != nil {
		return err
	}
	select {
	case r.slots <- struct{}{}:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	go func() {
		defer close(c.done)
		if c.parse != nil {
			c.err = c.parse(c)
		}
		<-r.slots
	}()
	select {
	case r.chunks <- c:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// file reads one file from a mark to its end, and returns the mark after its last record.
func (r *reading) file(from mark) (mark, error) {
	name := r.s.names[r.order[from.file]]
	if table.IsColumns(r.s.format) {
		return r.columns(name, from)
	}
	in, f, err := r.s.open(name, from.offset)
	if err != nil {
		return from, err
	}
	defer f.Close()
	if r.s.format == "tar" {
		return r.tar(name, in, f, from)
	}
	parse, err := r.s.rows(name)
	if err != nil {
		return from, err
	}
	lines := bufio.NewReaderSize(in, 256<<10)
	at, number := from.offset, from.number
	c := &chunk{parse: parse}
	for {
		line, err := table.ReadLine(lines)
		if err != nil && err != io.EOF {
			return from, fmt.Errorf("%s: byte %d: %w", name, at, err)
		}
		begin := at
		at += int64(len(line))
		text := bytes.TrimSpace(line)
		if begin == 0 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if len(text) > 0 && !(begin == 0 && r.s.format == "csv" && r.s.isHeader(text)) {
			if int(number%int64(r.size)) == r.rank {
				c.raw = append(c.raw, bytes.Clone(text))
				c.records = append(c.records, record{mark: mark{from.file, begin, number}})
				c.size += len(text)
			}
			number++
		}
		c.next = mark{from.file, at, number}
		if err == io.EOF {
			if f.Size() >= 0 {
				c.report = f.Report
			}
			return c.next, r.send(c)
		}
		if len(c.raw) == chunkRecords || c.size > chunkBytes || number-from.number > 1<<16 && len(c.raw) == 0 {
			if err := r.send(c); err != nil {
				return from, err
			}
			c = &chunk{parse: parse}
		}
	}
}

// open opens a file at an offset in its decompressed content.
func (s *Stream) open(name string, offset int64) (_ io.Reader, _ *starlib.File, err error) {
	defer try.Caught(&err)
	f := try.To(s.files.OpenQuietly(name))
	in, packed, err := unpack(f)
	if err == nil && offset > 0 {
		if packed {
			_, err = io.CopyN(io.Discard, in, offset)
		} else if err = f.SeekTo(offset); err == nil {
			in = bufio.NewReaderSize(f, 64<<10)
		}
		if err == io.EOF {
			err = fmt.Errorf("it ends before byte %d, where the checkpoint was: it has changed", offset)
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return in, f, nil
}

// isHeader reports whether a CSV line holds names.
func (s *Stream) isHeader(line []byte) bool {
	fields, err := s.split(line)
	return err == nil && isHeader(fields)
}

func (s *Stream) split(line []byte) ([]string, error) {
	if bytes.IndexByte(line, '"') < 0 {
		return strings.Split(string(line), string(rune(s.comma))), nil
	}
	r := csv.NewReader(bytes.NewReader(line))
	r.Comma = rune(s.comma)
	r.TrimLeadingSpace = true
	return r.Read()
}

// rows returns the parser for a file's lines.
func (s *Stream) rows(name string) (_ func(c *chunk) error, err error) {
	defer try.Caught(&err)
	var parse func(r *record, raw []byte) error
	switch s.format {
	case "text":
		parse = func(r *record, raw []byte) error { r.value = string(raw); return nil }
	case "jsonl":
		parse = func(r *record, raw []byte) (err error) { r.value, err = table.ParseJSON(raw); return err }
	default:
		width, label := try.To2(s.shape(name))
		parse = func(r *record, raw []byte) error { return s.parseRow(r, raw, width, label) }
	}
	return func(c *chunk) error {
		for i, raw := range c.raw {
			if err := parse(&c.records[i], raw); err != nil {
				return fmt.Errorf("%s: byte %d (record %d): %w", name, c.records[i].offset, c.records[i].number, err)
			}
		}
		return nil
	}, nil
}

// shape finds the number of columns, and the label's column, in the first line of a CSV file.
func (s *Stream) shape(name string) (width, label int, err error) {
	defer try.Caught(&err)
	in, f := try.To2(s.open(name, 0))
	defer f.Close()
	first, err := table.ReadLine(bufio.NewReaderSize(in, 64<<10))
	var fields []string
	if err == nil || err == io.EOF {
		fields, err = s.split(bytes.TrimPrefix(bytes.TrimSpace(first), []byte("\ufeff")))
	}
	try.FailIf(err != nil, "%s: byte 0: %w", name, err)
	label, err = labelColumn(s.label, fields)
	try.FailIf(err != nil, "%s: %w", name, err)
	return len(fields), label, nil
}

func (s *Stream) parseRow(r *record, raw []byte, width, label int) (err error) {
	defer try.Caught(&err)
	fields := strings.SplitSeq(textOf(raw), string(rune(s.comma)))
	if bytes.IndexByte(raw, '"') >= 0 {
		list := try.To(s.split(raw))
		fields = slices.Values(list)
	}
	r.x = make([]float32, 0, width)
	column := 0
	for field := range fields {
		c, err := parseCell(field, column, label)
		switch {
		case err != nil:
			return err
		case column == label && s.whole && !c.whole:
			return fmt.Errorf("column %d: the label %s is not a 64-bit integer; label_dtype = \"float32\" accepts it", column+1, shorten(strings.TrimSpace(field)))
		case column == label:
			r.y, r.class = c.value, c.integer
		case column < width:
			r.x = append(r.x, float32(c.value))
		}
		column++
	}
	try.FailIf(column != width, "the line has %d columns, but the first has %d", column, width)
	return nil
}

// sampled is how many bytes at each end of a file go into the checksum.
const sampled = 4096

func streamOf(r *starlib.Rank, c *starlib.Call) (starlark.Value, error) {
	s := &Stream{Opaque: "Stream", files: r.Files, label: c.Arg("label"), comma: ',', buffer: c.Int("buffer")}
	if one, ok := starlark.AsString(c.Arg("path")); ok {
		s.names = []string{one}
	} else {
		s.names = stringsOf(c.Arg("path"), "path")
	}
	try.FailIf(len(s.names) == 0, "argument path: there are no files")
	try.FailIf(s.buffer < 1 || s.buffer > 1<<28, "buffer = %d: want from 1 to %d samples", s.buffer, 1<<28)
	sum := crc32.NewIEEE()
	for _, name := range s.names {
		format := formatOf(name)
		switch {
		case isText(name):
			format = "text"
		case format == "tgz":
			format = "tar"
		case format == "tsv":
			format, s.comma = "csv", '\t'
		}
		if !c.IsNone("format") {
			format = c.String("format")
		}
		try.FailIf(s.format != "" && format != s.format, "%s: a stream has files of one format, and %s is %s", name, s.names[0], s.format)
		s.format = format
		try.FailIf(!slices.Contains([]string{"arrow", "csv", "jsonl", "parquet", "tar", "text"}, format), "%s: unknown format of a stream; set format to one of: arrow, csv, jsonl, parquet, tar, text", name)
		f := try.To(r.Files.OpenQuietly(name)) // a missing file is noticed here
		fmt.Fprintln(sum, f.Size())
		for _, at := range []int64{0, max(0, f.Size()-sampled)} {
			io.Copy(sum, io.NewSectionReader(f, at, sampled)) // what cannot be read is an error later
		}
		f.Close()
	}
	s.print = int(sum.Sum32())
	s.columns = stringsIn(c, "columns")
	if _, byNumber := s.label.(starlark.Int); table.IsColumns(s.format) && byNumber {
		return nil, fmt.Errorf("label = %s: for Parquet and Arrow, want the name of a column", s.label)
	} else if !table.IsColumns(s.format) && s.columns != nil {
		return nil, fmt.Errorf("columns: a stream of %s always has all columns; only Parquet and Arrow files can be read in part", s.format)
	}
	d := delimiterOf(c)
	try.FailIf(d > 127, "delimiter = %s: want an ASCII character", c.Arg("delimiter"))
	if d != 0 {
		s.comma = byte(d)
	}
	switch c.String("label_dtype") {
	case "int64":
		s.whole = true
	case "float32":
	default:
		return nil, fmt.Errorf("label_dtype = %s: want \"int64\" or \"float32\"", c.Arg("label_dtype"))
	}
	return s, nil
}

func streaming(r *starlib.Rank) *starlib.Def {
	return &starlib.Def{
		Sig: `stream(path: string | list, format: string = None, label: int | string = None, label_dtype: string = "int64", delimiter: string = None, buffer: int = 10000, columns: list = None, per_rank: bool = False) -> Stream`,
		Doc: `Files of any size, which data.loader reads record by record: .csv and .tsv of numbers (samples (x, y) or x, as data.csv has them; a header is skipped in each file), .jsonl (dicts), .txt (lines), .tar (dicts of the files whose names are the same up to the first dot: pictures as tensors, .cls as an int, .json, .txt, .npy, others as bytes; the name is "__key__"), each also compressed as .gz or .zst; .parquet and .arrow (dicts of a row's cells as data.table has them, or, with the name of a column as label, samples (x, y) of the numbers in the others; columns names the wanted ones).
The loader's shuffle = True shuffles the files, and picks each sample at random from a buffer of this many samples; if these take more memory than one value may, the error names the file and a buffer that fits. Record i goes to rank i % ranks; with shuffle every rank gets equally many batches. Files are read and parsed on other threads. The position of files and buffer is part of a checkpoint; a resumed run continues with the same bits. With another number of ranks a loader without shuffle continues with the next record; with shuffle it can do so only between epochs. len(loader) is not known. A malformed record is an error that names the file, the byte where the record begins (after decompression; in Parquet and Arrow the row group or record batch, and the row in it) and its number.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			notePerRank(r, c)
			return streamOf(r, c)
		},
	}
}
