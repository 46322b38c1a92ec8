package sqldb

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// on pretends that all folders are on a file system.
func on(t *testing.T, magic int64) {
	t.Helper()
	real := statfs
	t.Cleanup(func() { statfs = real })
	statfs = func(path string, info *unix.Statfs_t) error {
		err := real(path, info)
		info.Type = magic
		return err
	}
}

func journalMode(t *testing.T, db *sql.DB) (mode string, synchronous int) {
	t.Helper()
	ok(t, db.QueryRow("SELECT * FROM pragma_journal_mode, pragma_synchronous").Scan(&mode, &synchronous))
	return mode, synchronous
}

func TestJournalByFileSystem(t *testing.T) {
	for _, c := range []struct {
		magic       int64
		fs, journal string
		synchronous int
	}{
		{unix.EXT4_SUPER_MAGIC, "", "wal", 1}, {unix.NFS_SUPER_MAGIC, "NFS", "delete", 2}, {unix.V9FS_MAGIC, "9p", "delete", 2},
		{unix.FUSE_SUPER_MAGIC, "FUSE", "delete", 2}, {0x0BD00BD0, "Lustre", "delete", 2}, {unix.CIFS_SUPER_MAGIC, "SMB", "delete", 2},
		{unix.SMB2_SUPER_MAGIC - 1<<32, "SMB", "delete", 2}, // as 32-bit kernels give it
	} {
		on(t, c.magic)
		f := testFile(t, versions(1))
		if wal, name := Journal(filepath.Join(filepath.Dir(f.Path), "not", "there", "yet")); wal != (c.fs == "") || name != c.fs {
			t.Errorf("%#x: %v on %q", c.magic, wal, name)
		}
		if mode, synchronous := journalMode(t, open(t, f)); mode != c.journal || synchronous != c.synchronous {
			t.Errorf("%#x: journal %s, synchronous %d", c.magic, mode, synchronous)
		}
	}
}

// A database that comes from a file system with a write-ahead log keeps what is in
// the log.
func TestMovedToAnotherFileSystem(t *testing.T) {
	f := testFile(t, versions(1))
	writer := open(t, f)
	_, err := writer.Exec("INSERT INTO t1 VALUES (5)")
	ok(t, err)
	moved := testFile(t, versions(1))
	ok(t, os.CopyFS(filepath.Dir(moved.Path), os.DirFS(filepath.Dir(f.Path))))
	if size(moved.Path+"-wal") == 0 {
		t.Fatal("there is no log: the test tests nothing")
	}
	ok(t, os.Remove(moved.Path+"-shm"))
	on(t, unix.NFS_SUPER_MAGIC)
	r, err := OpenReadOnly(moved) // a reader must not keep a writer from that
	ok(t, err)
	defer r.Close()
	db := open(t, moved)
	var sum int
	ok(t, db.QueryRow("SELECT sum(x) FROM t1").Scan(&sum))
	if mode, _ := journalMode(t, db); sum != 6 || mode != "delete" {
		t.Errorf("the sum is %d, the journal %s", sum, mode)
	}
}

// What a killed writer had begun is undone by the next, also by a reader, and even
// where that cannot write.
func TestInterruptedWriter(t *testing.T) {
	on(t, unix.NFS_SUPER_MAGIC)
	f := testFile(t, versions(1))
	writer := open(t, f)
	ctx := context.Background()
	conn, err := writer.Conn(ctx)
	ok(t, err)
	defer conn.Close()
	for _, statement := range []string{"CREATE TABLE large (x)", "INSERT INTO large VALUES (zeroblob(100000))", "PRAGMA cache_size = 2", "BEGIN IMMEDIATE",
		"UPDATE t1 SET x = 100", "UPDATE large SET x = randomblob(100000)"} {
		_, err := conn.ExecContext(ctx, statement)
		ok(t, err)
	}
	read := func(db *sql.DB) {
		t.Helper()
		var x int
		ok(t, db.QueryRow("SELECT x FROM t1").Scan(&x))
		var zeros bool
		ok(t, db.QueryRow("SELECT x = zeroblob(100000) FROM large").Scan(&zeros))
		if x != 1 || !zeros {
			t.Errorf("half a transaction is there: x is %d, zeros %v", x, zeros)
		}
	}
	as := func() File { // as the writer's death leaves it
		killed := testFile(t, versions(1))
		ok(t, os.CopyFS(filepath.Dir(killed.Path), os.DirFS(filepath.Dir(f.Path))))
		content, err := os.ReadFile(killed.Path)
		ok(t, err)
		if size(killed.Path+"-journal") == 0 || strings.Count(string(content), "\x00") > 60_000 {
			t.Fatal("nothing was written yet: the test tests nothing")
		}
		return killed
	}
	read(open(t, as()))
	r, err := OpenReadOnly(as())
	ok(t, err)
	defer r.Close()
	read(r.DB)

	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	killed := as()
	ok(t, os.CopyFS(disk, os.DirFS(filepath.Dir(killed.Path))))
	killed.Path = filepath.Join(disk, filepath.Base(killed.Path))
	ok(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	sealed, err := OpenReadOnly(killed)
	ok(t, err)
	defer sealed.Close()
	read(sealed.DB)
}
