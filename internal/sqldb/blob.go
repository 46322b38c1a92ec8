package sqldb

/*
// Functions of SQLite that the driver does not offer. The driver links them into the program; they are weak here
// because cgo links each package alone first.
typedef struct sqlite3 sqlite3;
typedef struct sqlite3_blob sqlite3_blob;

#pragma weak sqlite3_open_v2
#pragma weak sqlite3_close_v2
#pragma weak sqlite3_errmsg
#pragma weak sqlite3_blob_open
#pragma weak sqlite3_blob_reopen
#pragma weak sqlite3_blob_bytes
#pragma weak sqlite3_blob_read
#pragma weak sqlite3_blob_close
int sqlite3_open_v2(const char *file, sqlite3 **db, int flags, const char *vfs);
int sqlite3_close_v2(sqlite3 *db);
const char *sqlite3_errmsg(sqlite3 *db);
int sqlite3_blob_open(sqlite3 *db, const char *schema, const char *table, const char *column, long long row, int write, sqlite3_blob **blob);
int sqlite3_blob_reopen(sqlite3_blob *blob, long long row);
int sqlite3_blob_bytes(sqlite3_blob *blob);
int sqlite3_blob_read(sqlite3_blob *blob, void *into, int bytes, int offset);
int sqlite3_blob_close(sqlite3_blob *blob);

#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	_ "github.com/mattn/go-sqlite3" // has the functions
)

// Blobs reads the blobs of one column by SQLite's incremental I/O, straight into the caller's memory: a query of the
// driver makes each blob anew on Go's heap. One goroutine may use it at a time.
type Blobs struct {
	db            *C.sqlite3
	blob          *C.sqlite3_blob // nil: none has been opened
	table, column *C.char
}

// OpenBlobs opens a database, named by a URI, for reading the blobs of a column.
func OpenBlobs(uri, table, column string) (*Blobs, error) {
	const readOnly, isURI, noMutex = 0x1, 0x40, 0x8000
	name := C.CString(uri)
	defer C.free(unsafe.Pointer(name))
	b := &Blobs{table: C.CString(table), column: C.CString(column)}
	if code := C.sqlite3_open_v2(name, &b.db, readOnly|isURI|noMutex, nil); code != 0 {
		defer b.Close()
		return nil, b.failure()
	}
	return b, nil
}

func (b *Blobs) failure() error { return errors.New(C.GoString(C.sqlite3_errmsg(b.db))) }

// Read fills into with the blob of a row. It is an error if the blob has another size.
func (b *Blobs) Read(row int64, into []byte) error {
	var code C.int
	if b.blob != nil {
		code = C.sqlite3_blob_reopen(b.blob, C.longlong(row))
	} else {
		schema := C.CString("main")
		defer C.free(unsafe.Pointer(schema))
		code = C.sqlite3_blob_open(b.db, schema, b.table, b.column, C.longlong(row), 0, &b.blob)
	}
	if code == 0 {
		if size := int(C.sqlite3_blob_bytes(b.blob)); size != len(into) {
			return fmt.Errorf("row %d does not have %d bytes but %d", row, len(into), size)
		}
		code = C.sqlite3_blob_read(b.blob, unsafe.Pointer(unsafe.SliceData(into)), C.int(len(into)), 0)
	}
	if code != 0 {
		err := b.failure()
		C.sqlite3_blob_close(b.blob) // after an error it cannot be opened at another row
		b.blob = nil
		return err
	}
	return nil
}

func (b *Blobs) Close() {
	C.sqlite3_blob_close(b.blob)
	C.sqlite3_close_v2(b.db)
	C.free(unsafe.Pointer(b.table))
	C.free(unsafe.Pointer(b.column))
}
