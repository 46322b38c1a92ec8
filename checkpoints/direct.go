package checkpoints

import (
	"database/sql"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// direct reads chunks from a pack without SQLite, whose driver allocates each on Go's heap; collecting them took as
// long as reading. It knows only the parts of SQLite's file format (https://www.sqlite.org/fileformat2.html) that
// packs use, and gives up if it finds anything else: SQLite then reads the chunk. Its result must be compared with
// the chunk's sum.
type direct struct {
	file *os.File
	page int64 // in bytes
	root int64 // the page at which the table chunks begins
	node []byte
	data []byte   // of the current chunk
	next []byte   // the page numbers at the start of overflow pages
	into [][]byte // where the bytes of these pages go
}

const (
	interior, leaf = 5, 13 // page kinds of a table
	deepest        = 20    // levels of a table; a pack has at most 4
	leastPage      = 4096  // with smaller pages, a chunk would have more pages than one call reads (IOV_MAX)
)

// openDirect returns nil if a pack cannot be read like this.
func (s *Store) openDirect(name string, db *sql.DB) *direct {
	d := &direct{}
	if db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'chunks'").Scan(&d.root) != nil {
		return nil
	}
	var err error
	if d.file, err = s.root.Open(name); err != nil {
		return nil
	}
	var header [24]byte
	if _, err = d.file.ReadAt(header[:], 0); err == nil {
		d.page = int64(binary.BigEndian.Uint16(header[16:]))
	}
	if string(header[:16]) != "SQLite format 3\x00" || d.page < leastPage || header[20] != 0 { // a page size of 1 means 65536; byte 20 is the reserved space per page
		d.file.Close()
		return nil
	}
	d.node = make([]byte, d.page)
	return d
}

// read returns a chunk, valid until the next call; nil: SQLite must read it.
func (d *direct) read(c place) []byte {
	payload, first := d.find(c.row)
	if payload == nil {
		return nil
	}
	// A record: the length of its header, the types of its columns, then their values.
	var types [4]int64
	at := 0
	for i := range types {
		n := 0
		if types[i], n = varint(payload[at:]); n == 0 {
			return nil
		}
		at += n
	}
	text := (types[2] - 13) / 2
	if types[0] != int64(at) || types[1] != 0 || types[2] != 13+2*64 || types[3] != 12+2*c.bytes || int64(len(payload)) < int64(at)+text {
		return nil
	}
	if d.data == nil {
		d.data = make([]byte, ChunkSize)
	}
	if c.bytes > int64(len(d.data)) {
		return nil
	}
	data := d.data[:c.bytes]
	rest := data[copy(data, payload[int64(at)+text:]):]
	if !d.overflow(first, rest) {
		return nil
	}
	return data
}

// find returns the part of a row in its leaf, and the page where the rest begins.
func (d *direct) find(row int64) (payload []byte, first int64) {
	page := d.root
	for range deepest {
		if page < 2 {
			return nil, 0
		}
		if _, err := d.file.ReadAt(d.node, (page-1)*d.page); err != nil {
			return nil, 0
		}
		cells := int(binary.BigEndian.Uint16(d.node[3:]))
		switch d.node[0] {
		case interior:
			page = int64(binary.BigEndian.Uint32(d.node[8:])) // to the right of all cells
			for i := range cells {
				cell := d.cell(12, i)
				if cell == nil {
					return nil, 0
				}
				if key, n := varint(cell[4:]); n == 0 {
					return nil, 0
				} else if row <= key {
					page = int64(binary.BigEndian.Uint32(cell))
					break
				}
			}
		case leaf:
			for i := range cells {
				cell := d.cell(8, i)
				if cell == nil {
					return nil, 0
				}
				size, n := varint(cell)
				key, m := varint(cell[n:])
				if n == 0 || m == 0 {
					return nil, 0
				}
				if key == row {
					return d.local(cell[n+m:], size)
				}
			}
			return nil, 0
		default:
			return nil, 0
		}
	}
	return nil, 0
}

// cell returns the page from the i-th cell on; nil: the cell is not within the page.
func (d *direct) cell(header, i int) []byte {
	if header+2*i+2 > len(d.node) {
		return nil
	}
	at := int(binary.BigEndian.Uint16(d.node[header+2*i:]))
	if at+4 > len(d.node) {
		return nil
	}
	return d.node[at:]
}

// local is the part of a payload in its cell: all of it if it fits, otherwise so much that the rest fills whole
// overflow pages, as far as that fits.
func (d *direct) local(cell []byte, size int64) (payload []byte, first int64) {
	most := d.page - 35
	least := (d.page-12)*32/255 - 23
	here := size
	if size > most {
		if here = least + (size-least)%(d.page-4); here > most {
			here = least
		}
	}
	if here < 0 || here > int64(len(cell)) {
		return nil, 0
	}
	if here < size {
		if here+4 > int64(len(cell)) {
			return nil, 0
		}
		first = int64(binary.BigEndian.Uint32(cell[here:]))
	}
	return cell[:here], first
}

// overflow reads what lies on overflow pages, each of which begins with the number of the next. The pages of a
// chunk were written consecutively, so they follow one another, except around the page at 1 GiB that SQLite does
// not use.
func (d *direct) overflow(first int64, data []byte) bool {
	if len(data) == 0 {
		return first == 0
	}
	pages := (len(data) + int(d.page) - 5) / (int(d.page) - 4)
	if len(d.next) < 4*pages {
		d.next = make([]byte, 4*pages)
	}
	d.into = d.into[:0]
	want := len(data) + 4*pages
	for i := range pages {
		n := min(len(data), int(d.page)-4)
		d.into = append(d.into, d.next[4*i:][:4], data[:n])
		data = data[n:]
	}
	if n, err := unix.Preadv(int(d.file.Fd()), d.into, (first-1)*d.page); n < want || err != nil {
		return false
	}
	for i := range int64(pages) {
		next := int64(binary.BigEndian.Uint32(d.next[4*i:]))
		if i+1 < int64(pages) && next != first+i+1 || i+1 == int64(pages) && next != 0 {
			return false
		}
	}
	return true
}

// varint reads a number in SQLite's encoding, and returns how many bytes it takes; 0: there is none.
func varint(b []byte) (v int64, n int) {
	for i := range min(len(b), 8) {
		v = v<<7 | int64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0 // one of nine bytes is larger than any number in a pack
}

func (d *direct) close() {
	if d != nil {
		d.file.Close()
	}
}
