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

	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
)

// packID is "drcp" in ASCII: the application id of packs.
const packID = 0x64726370

// packName is the form of the names of packs.
var packName = regexp.MustCompile(`^[a-z0-9]{26}\.db$`)

// The tables of a pack. PRAGMA user_version is 1 once all chunks are in it.
const (
	packChunks = "CREATE TABLE chunks (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, data BLOB NOT NULL)"
	packOrigin = "CREATE TABLE origin (store TEXT NOT NULL, generation INTEGER NOT NULL)"
)

// pack is a file of chunks that is being saved. Until it is in the catalog,
// its writer holds a lock on it: others then know that it is not garbage.
type pack struct {
	store *Store
	name  string
	path  string
	lock  *os.File
	rows  []packRow
}

type packRow struct {
	sha   string
	bytes int
}

// origin is the catalog for which a pack is written, and its generation then.
type origin struct {
	store      string
	generation int64
}

// writePack writes the chunks into a new file and makes it durable. Neither
// journal nor sync is needed on the way: nobody reads the file before it is
// in the catalog, and a crash just leaves it unknown.
func (s *Store) writePack(chunks map[string][]byte, from origin) (*pack, error) {
	p, err := s.newPack()
	if err != nil {
		return nil, err
	}
	err = p.fill(chunks, from)
	if err == nil {
		err = p.lock.Sync()
	}
	if err == nil {
		err = s.syncFolder()
	}
	if err != nil {
		p.close(false)
		return nil, sqldb.Wrap(p.path, err)
	}
	return p, nil
}

func (s *Store) newPack() (*pack, error) {
	for {
		name := strings.ToLower(rand.Text()) + ".db"
		path := filepath.Join(s.packs, name)
		lock, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, sqldb.FileMode)
		if err != nil {
			return nil, sqldb.Wrap(path, err)
		}
		// Between these two calls another process may take the file for garbage.
		locked := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
		if _, err := s.root.Lstat(name); locked && err == nil {
			return &pack{store: s, name: name, path: path, lock: lock}, nil
		}
		lock.Close()
	}
}

func packURI(path, params string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	return "file:" + (&url.URL{Path: abs}).EscapedPath() + "?" + params
}

func (p *pack) fill(chunks map[string][]byte, from origin) (err error) {
	db, err := sql.Open("sqlite3", packURI(p.path, "_journal_mode=OFF&_synchronous=OFF&_locking_mode=EXCLUSIVE"))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	db.SetMaxOpenConns(1)
	_, err = db.Exec(fmt.Sprintf("PRAGMA page_size = 16384; PRAGMA application_id = %d; %s; %s", packID, packChunks, packOrigin))
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec("INSERT INTO origin VALUES (?, ?)", from.store, from.generation); err != nil {
		return err
	}
	for _, sha := range slices.Sorted(maps.Keys(chunks)) {
		p.rows = append(p.rows, packRow{sha, len(chunks[sha])})
		if _, err := tx.Exec("INSERT INTO chunks VALUES (?, ?, ?)", len(p.rows), sha, chunks[sha]); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	// Only now: a commit without a journal writes the header before the rest.
	_, err = db.Exec("PRAGMA user_version = 1")
	return err
}

// enter puts the pack into the catalog. Chunks that another process has
// stored in the meantime stay where they are.
func (p *pack) enter(tx *sql.Tx) error {
	if len(p.rows) == 0 {
		return nil
	}
	return p.list(tx, "INSERT OR IGNORE INTO chunks (pack, row, bytes, sha256) VALUES (?1, ?2, ?3, ?4)")
}

// take puts the pack into the catalog, as the one that has its chunks from now on
// instead of the pack file.
func (p *pack) take(tx *sql.Tx, file string) error {
	return p.list(tx, "UPDATE chunks SET pack = ?1, row = ?2 WHERE bytes = ?3 AND sha256 = ?4 AND pack = (SELECT id FROM packs WHERE file = ?5)", file)
}

// list adds the pack to the catalog, and executes a statement for each chunk.
func (p *pack) list(tx *sql.Tx, statement string, more ...any) error {
	result, err := tx.Exec("INSERT INTO packs (file) VALUES (?)", p.name)
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return err
	}
	for i, row := range p.rows {
		if _, err := tx.Exec(statement, append([]any{id, i + 1, row.bytes, row.sha}, more...)...); err != nil {
			return err
		}
	}
	return nil
}

// close ends the writing of a pack, and removes its file unless the catalog lists it.
func (p *pack) close(entered bool) {
	if p.lock == nil {
		return
	}
	if !entered {
		_ = p.store.root.Remove(p.name) // a later Open removes what stays
	}
	p.lock.Close()
}

func (s *Store) syncFolder() error {
	folder, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
