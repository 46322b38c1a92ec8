package history

import (
	"cmp"
	"database/sql"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// The spool, <home>/spool/UID.batches, holds the batches of a run that could not be written because another process
// had the history locked. Each is framed by its length and checksum, so that one cut short when its agent was
// killed is recognized. The run writes them to the history as soon as the lock is free; after the agent's end, the
// next process that opens the history does. Batches are numbered, so that none is written twice.

const spoolSuffix = ".batches"

type spool struct {
	mu   sync.Mutex
	file *os.File // nil: no file
	at   int64    // offset of the oldest batch that is not in the history
	end  int64    // offset where the next is appended
}

// frameSize is the size of what precedes every batch: its length and checksum, four bytes each.
const frameSize = 8

var (
	spoolEncoder = must(cbor.EncOptions{NaNConvert: cbor.NaNConvertNone, InfConvert: cbor.InfConvertNone, Time: cbor.TimeRFC3339NanoUTC}.EncMode())
	spoolDecoder = must(cbor.DecOptions{MaxArrayElements: 1<<31 - 1, UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func (db *DB) spoolPath(uid string) string { return filepath.Join(db.home, "spool", uid+spoolSuffix) }

// Spool keeps a batch outside the history. It never waits for the history's lock, and may be called during Write.
func (r *Run) Spool(b *Batch) error {
	r.Number(b)
	r.moving.RLock()
	path, whole := r.db.spoolPath(r.UID), r.db.path
	r.moving.RUnlock()
	data, err := encodeBatch(b)
	if err == nil {
		err = r.queue.append(path, data)
	}
	if sqldb.IsFull(err) {
		path = whole // the disk is full for the history, which another process had locked when this was noticed
	}
	return sqldb.Wrap(path, err)
}

func encodeBatch(b *Batch) ([]byte, error) {
	body, err := spoolEncoder.Marshal(b)
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, crc32.ChecksumIEEE(body))
	return append(frame, body...), err
}

func decodeBatch(body []byte) (*Batch, error) {
	b := &Batch{}
	return b, spoolDecoder.Unmarshal(body, b)
}

func (s *spool) append(path string, data []byte) (err error) {
	defer try.Caught(&err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		try.Ok(os.MkdirAll(filepath.Dir(path), 0o700))
		s.file = try.To(os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600))
		s.at, s.end = 0, 0
	}
	try.To(s.file.WriteAt(data, s.end))
	s.end += int64(len(data))
	return nil
}

// oldest reads the first batch that is not in the history, or nil.
func (s *spool) oldest() (b *Batch, next int64, err error) {
	defer try.Caught(&err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.end-s.at < frameSize {
		return nil, 0, nil
	}
	frame := make([]byte, frameSize)
	try.To(s.file.ReadAt(frame, s.at))
	length := binary.LittleEndian.Uint32(frame)
	next = s.at + frameSize + int64(length)
	if next > s.end {
		return nil, 0, nil // torn
	}
	body := make([]byte, length)
	try.To(s.file.ReadAt(body, s.at+frameSize))
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(frame[4:]) {
		return nil, 0, nil // torn too
	}
	b, err = decodeBatch(body)
	return b, next, err
}

// drop removes the batches before next, and with the last one the file. It reports whether there are more.
func (s *spool) drop(next int64) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at = next; s.at < s.end {
		return true
	}
	s.remove()
	return false
}

func (s *spool) remove() {
	os.Remove(s.file.Name())
	s.file.Close()
	s.file = nil
}

// Spooled is the file in which batches wait for the history; "" if none do.
func (r *Run) Spooled() string {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	if r.queue.file == nil {
		return ""
	}
	return r.queue.file.Name()
}

// Unspool writes the oldest batch of the spool to the history, and reports whether there are more.
func (r *Run) Unspool() (more bool, err error) {
	b, next, err := r.queue.oldest()
	if err != nil || b == nil {
		return false, sqldb.Wrap(r.db.spoolPath(r.UID), err)
	}
	if err := r.Write(b); err != nil {
		return true, err
	}
	return r.queue.drop(next), nil
}

// abandoned returns the runs with a spool whose agents are gone: the next process that opens the history writes them.
func (db *DB) abandoned() (runs []*Run, err error) {
	defer try.Caught(&err)
	for _, name := range spools(db.home) {
		r := &Run{UID: strings.TrimSuffix(filepath.Base(name), spoolSuffix), db: db}
		try.Ok(db.read(func(rows *sql.Rows) error { return rows.Scan(&r.ID) }, "SELECT id FROM runs WHERE uid = ?", r.UID))
		if r.ID != 0 && db.agentGone(r.ID) { // else it belongs to another history, or its agent will write it
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// unspool writes the batches in the spools of agents that are gone.
func (db *DB) unspool() (err error) {
	defer try.Caught(&err)
	left := try.To(db.abandoned())
	for _, r := range left {
		path := db.spoolPath(r.UID)
		r.queue.file, r.queue.end, err = openSpool(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has written it
		}
		if err != nil {
			return sqldb.Wrap(path, err)
		}
		for more := true; more; {
			if more, err = r.Unspool(); err != nil {
				r.queue.file.Close()
				return err
			}
		}
		if r.queue.file != nil { // with a torn batch at its end
			r.queue.remove()
		}
	}
	return nil
}

// openSpool opens an existing spool. A home may come from anywhere, so anything but a plain file counts as missing,
// fs.ErrNotExist.
func openSpool(path string) (file *os.File, size int64, err error) {
	file, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, fs.ErrNotExist
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, 0, cmp.Or(err, fs.ErrNotExist)
	}
	return file, info.Size(), nil
}

// spools lists the spools beneath a home.
func spools(home string) []string {
	names, _ := fs.Glob(os.DirFS(home), "spool/*"+spoolSuffix) // the pattern is valid
	return names
}

// Copy writes a copy of the history into folder, a home of its own, while runs go on, and returns the names of the
// files. It copies the spools first: batches that move from them to the history meanwhile are in both, which is
// harmless since batches are numbered. saved tells which checkpoints of running runs exist; others are not listed
// in the copy. Without a history the error is *ErrNone.
func Copy(home, folder string, saved func(uid string, step int64) bool) (names []string, err error) {
	for _, name := range spools(home) {
		from := filepath.Join(home, name)
		err := copySpool(from, filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // all of it is in the history already
		}
		if err != nil {
			return nil, sqldb.Wrap(from, err)
		}
		names = append(names, name)
	}
	to := file(folder)
	err = sqldb.Copy(file(home), to.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{home}
	}
	if err != nil {
		return nil, err
	}
	return append(names, "history.db"), unlist(to, saved)
}

func copySpool(from, to string) (err error) {
	defer try.Caught(&err)
	in, _ := try.To2(openSpool(from))
	defer in.Close()
	try.Ok(os.MkdirAll(filepath.Dir(to), sqldb.FolderMode))
	out := try.To(os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, sqldb.FileMode))
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// unlist removes from a history the checkpoints that saved does not know, of running runs and of those that came from elsewhere: the
// rest of these comes again.
func unlist(f sqldb.File, saved func(uid string, step int64) bool) (err error) {
	defer try.Caught(&err)
	db := try.To(sqldb.Open(f))
	err = sqldb.Write(db, f.Path, func(tx *sql.Tx) error {
		type row struct{ run, step int64 }
		var gone []row
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
			var r row
			var uid string
			err := rows.Scan(&r.run, &uid, &r.step)
			if err == nil && !saved(uid, r.step) {
				gone = append(gone, r)
			}
			return err
		}, "SELECT r.id, r.uid, c.step FROM checkpoints c JOIN runs r ON r.id = c.run WHERE r.status = ? OR r.owner IS NOT NULL", Running))
		return execute(tx, "DELETE FROM checkpoints WHERE run = ? AND step = ?", gone, func(r *row) []any { return []any{r.run, r.step} })
	})
	return errors.Join(err, db.Close())
}

// Sync makes the records of a run durable against a crash of the machine, which commits alone do not.
func Sync(home, uid string) error {
	path := filepath.Join(home, "history.db")
	spool := filepath.Join(home, "spool", uid+spoolSuffix)
	for _, name := range []string{path + "-wal", path, spool, home} {
		if err := sqldb.Sync(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sqldb.Wrap(name, err)
		}
	}
	return nil
}
