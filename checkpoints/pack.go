package checkpoints

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
)

// pack is a file of chunks that is being saved. Until it is in the catalog,
// its writer holds a lock on it: others then know that it is not garbage.
type pack struct {
	path string
	lock *os.File
	rows []packRow
}

type packRow struct {
	sha   string
	bytes int
}

// writePack writes the chunks into a new file and makes it durable. Neither
// journal nor sync is needed on the way: nobody reads the file before it is
// in the catalog, and a crash just leaves it unknown.
func (s *Store) writePack(chunks map[string][]byte) (*pack, error) {
	p, err := s.newPack()
	if err != nil {
		return nil, err
	}
	err = p.fill(chunks)
	if err == nil {
		err = p.lock.Sync()
	}
	if err == nil {
		err = syncFolder(s.packs)
	}
	if err != nil {
		p.settle(false)
		return nil, sqldb.Wrap(p.path, err)
	}
	return p, nil
}

func (s *Store) newPack() (*pack, error) {
	for {
		path := filepath.Join(s.packs, strings.ToLower(rand.Text())+".db")
		lock, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
		if err != nil {
			return nil, sqldb.Wrap(path, err)
		}
		// Between these two another process may take it for garbage.
		locked := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
		if _, err := os.Stat(path); locked && err == nil {
			return &pack{path: path, lock: lock}, nil
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

func (p *pack) fill(chunks map[string][]byte) (err error) {
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
	_, err = db.Exec(fmt.Sprintf(`PRAGMA page_size = 16384; PRAGMA application_id = %d;
		CREATE TABLE chunks (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, data BLOB NOT NULL)`, applicationID))
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, sha := range slices.Sorted(maps.Keys(chunks)) {
		p.rows = append(p.rows, packRow{sha, len(chunks[sha])})
		if _, err := tx.Exec("INSERT INTO chunks VALUES (?, ?, ?)", len(p.rows), sha, chunks[sha]); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// enter puts the pack into the catalog. Chunks that another process has
// stored in the meantime stay where they are.
func (p *pack) enter(tx *sql.Tx) error {
	if len(p.rows) == 0 {
		return nil
	}
	result, err := tx.Exec("INSERT INTO packs (file) VALUES (?)", filepath.Base(p.path))
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return err
	}
	for i, row := range p.rows {
		if _, err := tx.Exec("INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?)", row.sha, id, i+1, row.bytes); err != nil {
			return err
		}
	}
	return nil
}

// settle ends the writing: the file stays if it is in the catalog now.
func (p *pack) settle(entered bool) {
	if p.lock == nil {
		return
	}
	if !entered {
		os.Remove(p.path)
	}
	p.lock.Close()
}

// collect removes packs that are in no catalog and that nobody is writing.
func (s *Store) collect() error {
	files, err := os.ReadDir(s.packs)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := s.collectFile(file); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) collectFile(file fs.DirEntry) error {
	if !strings.HasSuffix(file.Name(), ".db") {
		return nil
	}
	known := func() (n int, err error) {
		return n, s.sql.QueryRow("SELECT count(*) FROM packs WHERE file = ?", file.Name()).Scan(&n)
	}
	if n, err := known(); n > 0 || err != nil {
		return sqldb.Wrap(s.path, err)
	}
	path := filepath.Join(s.packs, file.Name())
	lock, err := os.Open(path)
	if err != nil {
		return nil // gone by now, or not ours to judge
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // being written
	}
	// It may have been entered just before its lock was released.
	if n, err := known(); n > 0 || err != nil {
		return sqldb.Wrap(s.path, err)
	}
	return os.Remove(path)
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
