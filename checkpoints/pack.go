package checkpoints

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// packID is "drcp" in ASCII: the application id of packs.
const packID = 0x64726370

var packName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{26}\.db$`) })

// The tables of a pack. PRAGMA user_version is 1 once it has all chunks.
const (
	packChunks = "CREATE TABLE chunks (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, data BLOB NOT NULL)"
	packOrigin = "CREATE TABLE origin (store TEXT NOT NULL, generation INTEGER NOT NULL)"
)

// small is the most bytes of chunks that go into the catalog instead of a file of their own, which has an overhead of
// some 50 KiB.
const small = 256 << 10

// pack is a file of chunks that is being saved; it has no file while they are small. Until it is in the catalog,
// its writer holds a lock on the file, which tells others that it is not garbage.
type pack struct {
	store   *Store
	from    origin
	name    string
	path    string
	lock    *os.File // nil: no file
	db      *sql.DB  // nil: not being written to
	tx      *sql.Tx
	rows    []packRow
	bytes   int             // of all rows
	written int             // rows that are in the file
	has     map[string]bool // chunks by SHA-256
	torn    map[string]bool // other packs that were examined: whether part of their file is missing
	behind  int             // bytes that may not be on their way to the disk yet
}

type packRow struct {
	sha   string
	bytes int
	data  []byte // nil: it is in the file
	sum   []byte // nil: it is not in the file yet
}

// origin is the catalog for which a pack is written, with its generation at that time.
type origin struct {
	store      string
	generation int64
}

func (s *Store) newPack(from origin) *pack {
	return &pack{store: s, from: from, has: map[string]bool{}, torn: map[string]bool{}}
}

// add accepts chunks, and writes them once they exceed small. No journal or sync is needed on the way: nobody reads
// the file before it is in the catalog, and a crash just leaves it unlisted.
func (p *pack) add(chunks map[string][]byte) error {
	if p.store.Objects != nil {
		return p.addElsewhere(chunks)
	}
	for _, sha := range slices.Sorted(maps.Keys(chunks)) {
		p.rows = append(p.rows, packRow{sha: sha, bytes: len(chunks[sha]), data: chunks[sha]})
		p.has[sha] = true
		p.bytes += len(chunks[sha])
	}
	if p.bytes <= small {
		return nil
	}
	if p.lock == nil {
		if err := p.create(); err != nil {
			return err
		}
	}
	return sqldb.Wrap(p.path, p.write())
}

// addFresh writes chunks that the pack does not have yet, fetching those that are elsewhere.
func (p *pack) addFresh(chunks map[string]*chunk) error {
	here := map[string][]byte{}
	maps.DeleteFunc(chunks, func(sha string, c *chunk) bool {
		if !p.has[sha] && c.fetch == nil {
			here[sha] = c.data
		}
		return p.has[sha] || c.fetch == nil
	})
	if err := p.add(here); err != nil {
		return err
	}
	for data, err := range fetchAll(chunks) {
		if err == nil {
			err = p.add(data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flushEvery is the number of bytes after which the kernel is told to begin writing; otherwise all of it would wait for
// the final sync.
const flushEvery = 8 << 20

func (p *pack) write() error {
	for ; p.written < len(p.rows); p.written++ {
		row := &p.rows[p.written]
		sum := xxh3.Hash128(row.data).Bytes()
		if _, err := p.tx.Exec("INSERT INTO chunks VALUES (?, ?, ?)", p.written+1, row.sha, row.data); err != nil {
			return err
		}
		row.data, row.sum = nil, sum[:]
		if p.behind += row.bytes; p.behind >= flushEvery {
			_ = unix.SyncFileRange(int(p.lock.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // a hint: some file systems do not support it
			p.behind = 0
		}
	}
	return nil
}

// sync finishes writing and makes the file durable.
func (p *pack) sync() (err error) {
	if p.lock == nil {
		return nil
	}
	defer try.CaughtOr(&err, func() { err = sqldb.Wrap(p.path, err) })
	try.Ok(p.finish())
	try.Ok(p.lock.Sync())
	return sqldb.Sync(p.store.packs)
}

func (p *pack) finish() error {
	if err := p.tx.Commit(); err != nil {
		return err
	}
	// Only now: a commit without a journal writes the header before the rest.
	_, err := p.db.Exec("PRAGMA user_version = 1")
	if cerr := p.db.Close(); err == nil {
		err = cerr
	}
	p.db = nil
	return err
}

// create makes the file, locked, and its tables.
func (p *pack) create() error {
	for p.lock == nil {
		name := strings.ToLower(rand.Text()) + ".db"
		path := filepath.Join(p.store.packs, name)
		lock, err := p.store.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, sqldb.FileMode)
		if err != nil {
			return sqldb.Wrap(path, err)
		}
		// Between these two calls, another process may take the file for garbage.
		locked := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
		if _, err := p.store.root.Lstat(name); locked && err == nil {
			p.name, p.path, p.lock = name, path, lock
		} else {
			lock.Close()
		}
	}
	return sqldb.Wrap(p.path, p.begin())
}

func (p *pack) begin() (err error) {
	defer try.Caught(&err)
	p.db = try.To(sql.Open("sqlite3", packURI(p.path, "_journal_mode=OFF&_synchronous=OFF&_locking_mode=EXCLUSIVE")))
	p.db.SetMaxOpenConns(1)
	try.To(p.db.Exec(fmt.Sprintf("PRAGMA page_size = 16384; PRAGMA application_id = %d; %s; %s", packID, packChunks, packOrigin)))
	p.tx = try.To(p.db.Begin())
	_, err = p.tx.Exec("INSERT INTO origin VALUES (?, ?)", p.from.store, p.from.generation)
	return err
}

func packURI(path, params string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	return "file:" + (&url.URL{Path: abs}).EscapedPath() + "?" + params
}

// enter enters the pack into the catalog. Chunks that another process has stored in the meantime stay where they
// are; those of torn packs are from now on in this one, for earlier checkpoints too.
func (p *pack) enter(tx *sql.Tx) error {
	if len(p.rows) == 0 {
		return nil
	}
	maps.DeleteFunc(p.torn, func(_ string, torn bool) bool { return !torn })
	return p.list(tx, `INSERT INTO chunks (pack, row, bytes, sha256, sum, data) VALUES (?1, ?2, ?3, unhex(?4), ?5, ?6)
		ON CONFLICT (sha256) DO UPDATE SET pack = ?1, row = ?2, bytes = ?3, sum = ?5, data = ?6
		WHERE pack NOT IN (SELECT id FROM packs WHERE file NOT IN (SELECT value FROM json_each(?7)))`, sqldb.JSON(slices.Collect(maps.Keys(p.torn))))
}

// take enters the pack into the catalog as the new place of its chunks, instead of the pack file.
func (p *pack) take(tx *sql.Tx, file string) error {
	return p.list(tx, "UPDATE chunks SET pack = ?1, row = ?2, sum = ?5, data = ?6 WHERE bytes = ?3 AND sha256 = unhex(?4) AND pack = (SELECT id FROM packs WHERE file = ?7)", file)
}

// list adds the pack to the catalog, if it has a file, and executes a statement for each chunk.
func (p *pack) list(tx *sql.Tx, statement string, more ...any) (err error) {
	defer try.Caught(&err)
	var id, number, data any // NULL in the catalog
	if p.lock != nil {
		id = try.To(try.To(tx.Exec("INSERT INTO packs (file) VALUES (?)", p.name)).LastInsertId())
	}
	for i, row := range p.rows {
		switch {
		case p.lock != nil:
			number = i + 1
		case p.store.Objects != nil:
			number = elsewhere
		default:
			data = row.data
		}
		try.To(tx.Exec(statement, append([]any{id, number, row.bytes, row.sha, row.sum, data}, more...)...))
	}
	return nil
}

// close ends the writing of a pack, and removes its file unless the catalog lists it.
func (p *pack) close(entered bool) {
	if p.lock == nil {
		return
	}
	if p.tx != nil {
		_ = p.tx.Rollback()
	}
	if p.db != nil {
		p.db.Close()
	}
	if !entered {
		_ = p.store.root.Remove(p.name) // a later Open removes what remains
	}
	p.lock.Close()
}
