package checkpoints

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Load returns the entries of one rank in the order in which they were saved. It checks every chunk against its
// sum: bytes that have changed are a *sqldb.Error, never a result. Without such a checkpoint the error is *ErrNone.
func (s *Store) Load(run string, ref Ref, rank int) (Info, []Entry, error) {
	v, err := s.View(run, ref, []int{rank})
	if err != nil {
		return v.Info, nil, err
	}
	data := make(slab, v.Size)
	err = v.Copy(data, 0, v.Size)
	v.Close()
	if errors.Is(err, fs.ErrNotExist) {
		if now, ferr := s.Find(run, ref); ferr != nil || !now.Same(v.Info) { // another process has removed the checkpoint
			return s.Load(run, ref, rank)
		}
	}
	if err != nil {
		return v.Info, nil, err
	}
	entries := make([]Entry, len(v.Parts[0]))
	for i, e := range v.Parts[0] {
		entries[i] = e.Entry
		entries[i].Data = data[e.Offset:][:e.Bytes:e.Bytes]
	}
	return v.Info, entries, nil
}

// slab is memory that can be written at offsets.
type slab []byte

func (s slab) WriteAt(data []byte, offset int64) (int, error) { return copy(s[offset:], data), nil }

// Located is an entry whose data lies at an offset in a View.
type Located struct {
	Entry         // without Data
	Offset, Bytes int64
}

// planned is an entry and where its bytes are.
type planned struct {
	Entry
	id, bytes int64
	chunks    []place
	digest    string
}

// sums are the SHA-256 of the entry's chunks.
func (p *planned) sums() []string {
	return each.Of(p.chunks, func(c place) string { return c.sha })
}

type place struct {
	sha, file  string // "": the data is in the catalog itself
	row, bytes int64
	sum        []byte // XXH3-128; empty: unknown
}

// placeColumns are the columns of a place, where c are chunks and p packs.
const placeColumns = "lower(hex(c.sha256)), coalesce(c.row, 0) AS row, c.bytes, c.sum, coalesce(p.file, '') AS file"

func (p *place) columns() []any { return []any{&p.sha, &p.row, &p.bytes, &p.sum, &p.file} }

// named reports whether the file name can be that of a pack.
func (p place) named() bool { return p.file == "" || packName().MatchString(p.file) }

// plan reads from the catalog, all at one moment, which entries ranks saved.
func (s *Store) plan(run string, ref Ref, ranks []int) (info Info, plans [][]planned, err error) {
	defer try.Caught(&err)
	try.Ok(sqldb.Read(s.sql, s.path, func(conn *sql.Conn) (err error) {
		info = try.To(s.find(conn, run, ref))
		for _, rank := range ranks {
			if rank < 0 || rank >= info.WorldSize {
				return fmt.Errorf("checkpoint of step %d has ranks 0 to %d, not %d", info.Step, info.WorldSize-1, rank)
			}
			plan, err := s.entries(conn, info.id, rank)
			if err != nil {
				return s.wrap(err)
			}
			plans = append(plans, plan)
		}
		return nil
	}))
	for i, plan := range plans {
		try.Ok(s.checkSizes(plan))
		try.Ok(s.checkDigests(info, ranks[i], plan))
	}
	return info, plans, nil
}

// reading is a chunk that is to be read to an offset.
type reading struct {
	place
	offset int64
	name   string // for messages
}

// arrange assigns each entry an offset; entries with the same chunks share one.
func arrange(plans [][]planned) (parts [][]Located, reads []reading, size int64) {
	const align = 64
	known := map[string]int64{}
	for _, plan := range plans {
		part := make([]Located, len(plan))
		for i, p := range plan {
			is := strings.Join(p.sums(), " ")
			offset, ok := known[is]
			if !ok {
				offset = size
				known[is] = offset
				at := offset
				for n, c := range p.chunks {
					reads = append(reads, reading{c, at, fmt.Sprintf("chunk %d of %s", n, quote(p.Name))})
					at += c.bytes
				}
				size = (at + align - 1) / align * align
			}
			part[i] = Located{p.Entry, offset, p.bytes}
		}
		parts = append(parts, part)
	}
	return parts, reads, size
}

// entries lists the entries that a rank saved, and where their bytes are.
func (s *Store) entries(conn *sql.Conn, checkpoint int64, rank int) (plan []planned, err error) {
	defer try.Caught(&err)
	try.Ok(sqldb.Each(conn, func(rows *sql.Rows) error {
		var e planned
		var shape string
		try.Ok(rows.Scan(&e.id, &e.Name, &e.Kind, &e.DType, &shape, &e.bytes, &e.digest))
		if err := json.Unmarshal([]byte(shape), &e.Shape); err != nil {
			return s.damaged("entries.shape of "+quote(e.Name), err)
		}
		plan = append(plan, e)
		return nil
	}, `SELECT id, name, kind, dtype, shape, bytes, lower(hex(digest)) FROM entries
		WHERE checkpoint = ? AND rank = ? ORDER BY id`, checkpoint, rank))
	i := 0
	return plan, sqldb.Each(conn, func(rows *sql.Rows) error {
		var id int64
		var p place
		try.Ok(rows.Scan(append([]any{&id}, p.columns()...)...))
		for i < len(plan) && plan[i].id != id {
			i++
		}
		if i == len(plan) {
			return s.damaged("entries.id", errors.New("is not unique"))
		}
		plan[i].chunks = append(plan[i].chunks, p)
		return nil
	}, `SELECT e.id, `+placeColumns+` FROM entries e
		JOIN entry_chunks ec ON ec.entry = e.id JOIN chunks c ON c.id = ec.chunk LEFT JOIN packs p ON p.id = c.pack
		WHERE e.checkpoint = ? AND e.rank = ? ORDER BY e.id, ec.n`, checkpoint, rank)
}

// checkSizes compares the sizes in the catalog before memory is allocated for them.
func (s *Store) checkSizes(plan []planned) error {
	memory := int64(1 << 62)
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err == nil {
		memory = int64(machine.Totalram) * int64(machine.Unit)
	}
	total := int64(0)
	for i := range plan {
		e := &plan[i]
		of := " of " + quote(e.Name)
		if e.bytes < 0 {
			return s.damaged("entries.bytes"+of, fmt.Errorf("is %d", e.bytes))
		}
		elements := uint64(1)
		for _, n := range e.Shape {
			high, low := bits.Mul64(elements, uint64(max(n, 0)))
			if n < 0 || high != 0 {
				return s.damaged("entries.shape"+of, fmt.Errorf("%v is not a shape", e.Shape))
			}
			elements = low
		}
		if e.DType != "" && elements > uint64(e.bytes) {
			return s.damaged("entries.shape"+of, fmt.Errorf("%v is more than %d bytes", e.Shape, e.bytes))
		}
		sum := int64(0)
		for _, c := range e.chunks {
			if c.bytes < 1 || c.bytes > ChunkSize {
				return s.damaged("chunks.bytes"+of, fmt.Errorf("is %d", c.bytes))
			}
			if !c.named() {
				return s.damaged("packs.file"+of, fmt.Errorf("%s is not the name of a pack", quote(c.file)))
			}
			sum += c.bytes
		}
		if sum != e.bytes {
			return s.damaged("entries.bytes"+of, fmt.Errorf("is %d, but its chunks have %d", e.bytes, sum))
		}
		if total += sum; total > memory {
			return s.damaged("entries.bytes"+of, fmt.Errorf("is %d with the entries before it, more than this machine's memory", total))
		}
	}
	return nil
}

// spot is the place of an entry in its checkpoint: its rank, its index, and the number of the rank's entries.
type spot struct{ rank, i, n int }

// digest is the SHA-256 of what the catalog says about an entry and its checkpoint.
func digest(info Info, at spot, e Entry, bytes int64, sums []string) string {
	score := "none"
	if info.Score != nil && !math.IsNaN(*info.Score) {
		score = strconv.FormatFloat(*info.Score+0, 'g', -1, 64) // SQLite has no -0
	}
	text := fmt.Sprintf("%d %d %s %d/%d/%d %q %q %q %d %d %s", info.Step, info.WorldSize, score, at.rank, at.i, at.n, e.Name, e.Kind, e.DType, e.Shape, bytes, sums)
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// checkDigests compares what the catalog says now with what was written.
func (s *Store) checkDigests(info Info, rank int, plan []planned) error {
	where := "entries of step " + strconv.FormatInt(info.Step, 10)
	if len(plan) == 0 && info.Bytes > 0 {
		return s.damaged(where, fmt.Errorf("those of rank %d are missing", rank))
	}
	for i, e := range plan {
		if e.digest != "" && e.digest != digest(info, spot{rank, i, len(plan)}, e.Entry, e.bytes, e.sums()) {
			return s.damaged(where, fmt.Errorf("%s of rank %d is not as it was saved", quote(e.Name), rank))
		}
	}
	return nil
}

// Differing lists the names of entries that were not the same on all ranks, including those that only some ranks
// have. It compares their digests.
func (s *Store) Differing(run string, ref Ref) (names []string, err error) {
	err = sqldb.Read(s.sql, s.path, func(conn *sql.Conn) error {
		info := try.To(s.find(conn, run, ref))
		names, err = sqldb.Column[string](conn, `SELECT name FROM (
				SELECT e.name, e.rank, json_array(e.kind, e.dtype, e.shape, e.bytes,
					(SELECT group_concat(ec.chunk, ' ' ORDER BY ec.n) FROM entry_chunks ec WHERE ec.entry = e.id)) AS digest
				FROM entries e WHERE e.checkpoint = ?)
			GROUP BY name HAVING count(*) <> ? OR count(DISTINCT rank) <> ? OR count(DISTINCT digest) > 1 ORDER BY name`,
			info.id, info.WorldSize, info.WorldSize)
		return s.wrap(err)
	})
	return names, err
}

func damaged(path string, err error) error {
	return exit.WithHint(&sqldb.Error{Path: path, What: "is damaged", Err: err}, "resume from another checkpoint of the run")
}

// quote shows an untrusted text.
func quote(text string) string {
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// chunkReader reads chunks: from packs, which never change, and from the catalog.
type chunkReader struct {
	store *Store
	packs map[string]*sqldb.Blobs // open
	data  []byte                  // of the current chunk
}

func (s *Store) chunkReader() *chunkReader {
	return &chunkReader{store: s, packs: map[string]*sqldb.Blobs{}}
}

// read reads a chunk, called name in messages, and checks its SHA-256.
func (r *chunkReader) read(c place, name string) (data []byte, err error) {
	err = r.use(c, name, thoroughly, func(b []byte) error {
		data = bytes.Clone(b)
		return nil
	})
	return data, err
}

// How a chunk is checked: quickly is by its XXH3 if that is known, which finds all accidental changes, and
// thoroughly by its SHA-256.
const (
	quickly    = true
	thoroughly = false
)

// use is like read, for data that is not kept: do must not retain it. A chunk that another process has moved to another
// pack is read there.
func (r *chunkReader) use(c place, name string, quick bool, do func(data []byte) error) error {
	err := r.useAt(c, name, quick, do)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now, unknown := r.store.locate(c.sha)
	if errors.Is(unknown, sql.ErrNoRows) {
		return fmt.Errorf("the checkpoint was removed while it was read: %w", err)
	}
	if unknown != nil || now.file == c.file || now.bytes != c.bytes || !now.named() {
		return err
	}
	return r.useAt(now, name, quick, do)
}

// locate reads from the catalog where a chunk is now.
func (s *Store) locate(sha string) (p place, err error) {
	err = s.sql.QueryRow("SELECT "+placeColumns+" FROM chunks c LEFT JOIN packs p ON p.id = c.pack WHERE c.sha256 = unhex(?)", sha).
		Scan(p.columns()...)
	return p, err
}

// useAt is use of a chunk that is still where the catalog said.
func (r *chunkReader) useAt(c place, name string, quick bool, do func(data []byte) error) error {
	path, data, err := r.store.path, []byte(nil), error(nil)
	if c.file == "" {
		data, err = r.store.smallChunk(c, name)
	} else {
		var pack *sqldb.Blobs
		if pack, err = r.pack(c.file); err != nil {
			return err
		}
		if r.data == nil {
			r.data = make([]byte, ChunkSize)
		}
		path, data = filepath.Join(r.store.packs, c.file), r.data[:c.bytes]
		if err = pack.Read(c.row, data); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if known := xxh3.Hash128(data).Bytes(); err == nil && !(quick && bytes.Equal(known[:], c.sum)) {
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != c.sha {
			err = fmt.Errorf("%s does not have its SHA-256, %s", name, c.sha)
		}
	}
	if away := (*unreachable)(nil); errors.As(err, &away) {
		return away
	}
	if err != nil {
		return damaged(path, err)
	}
	return do(data)
}

// smallChunk reads a chunk that is in the catalog.
func (s *Store) smallChunk(c place, name string) (data []byte, err error) {
	// By its SHA-256, since its number in the catalog may have been reused.
	var away bool
	err = s.sql.QueryRow("SELECT CASE WHEN typeof(data) = 'blob' AND length(data) = ? THEN data END, row IS 0 FROM chunks WHERE sha256 = unhex(?) AND pack IS NULL",
		c.bytes, c.sha).Scan(&data, &away)
	if err == nil && away {
		data, err = s.fromElsewhere(c.sha)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist) // it was removed, and perhaps stored again in a pack
	} else if err == nil && int64(len(data)) != c.bytes {
		err = fmt.Errorf("%s does not have %d bytes", name, c.bytes)
	}
	return data, err
}

func (r *chunkReader) pack(file string) (_ *sqldb.Blobs, err error) {
	defer try.Caught(&err)
	if pack, ok := r.packs[file]; ok {
		return pack, nil
	}
	checked := try.To(r.store.openPack(file))
	defer checked.Close()
	pack, err := sqldb.OpenBlobs(packURI(filepath.Join(r.store.packs, file), readPack), "chunks", "data")
	if err != nil {
		return nil, r.store.packError(file, err)
	}
	r.packs[file] = pack
	return pack, nil
}

func (r *chunkReader) close() {
	for _, pack := range r.packs {
		pack.Close()
	}
}

// readPack is how packs are opened for reading.
const readPack = "immutable=1&mode=ro"

// packError is the error of a pack that cannot be read: fs.ErrNotExist if another process has since removed it.
func (s *Store) packError(name string, err error) error {
	if _, gone := s.root.Lstat(name); gone != nil {
		err = gone
	}
	return damaged(filepath.Join(s.packs, name), err)
}

// openPack opens a pack for reading. The file is the user's, so it must have the table that drun makes and no views
// or triggers, in which a query could run without end.
func (s *Store) openPack(name string) (*sql.DB, error) {
	path := filepath.Join(s.packs, name)
	if s.root == nil {
		return nil, damaged(path, fs.ErrNotExist)
	}
	if info, err := s.root.Lstat(name); err != nil {
		return nil, damaged(path, err)
	} else if !info.Mode().IsRegular() {
		return nil, damaged(path, errors.New("it is not a file of its own"))
	}
	db, err := sql.Open("sqlite3", packURI(path, readPack))
	if err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	db.SetMaxOpenConns(1)
	var foreign int
	err = db.QueryRow("SELECT count(*) - (SELECT count(*) FROM sqlite_schema WHERE sql = ?) - (SELECT count(*) FROM sqlite_schema WHERE sql = ?) FROM sqlite_schema",
		packChunks, packOrigin).Scan(&foreign)
	if err == nil && foreign != 0 {
		err = errors.New("its tables are not those of a pack")
	}
	if err != nil {
		db.Close()
		return nil, s.packError(name, err)
	}
	return db, nil
}
