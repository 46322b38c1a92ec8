package serve

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/backup"
	"drun/runs/serve/mlflow"
	"drun/runs/serve/objects"
	"drun/runs/transfer"
)

// A server with a bucket (Options.Artifacts) keeps in the home only the databases: chunks of checkpoints are chunks/… in the
// bucket, by their SHA-256, and artifacts of MLflow's clients artifacts/…. A copy of the databases, home.tar, is there as well,
// so that runs can be had from the bucket alone.

const homeInBucket = "home.tar"

// usedAfter is the age of a chunk that nothing refers to, from which it is removed: a younger one may belong to a checkpoint
// that is being entered.
const usedAfter = 24 * time.Hour

// keepFiles opens the place of artifacts and chunks, and answers MLflow's clients.
func (s *Server) keepFiles(ctx context.Context) (err error) {
	defer try.Caught(&err)
	if s.Artifacts != "" {
		s.bucket = try.To(objects.OpenBucket(ctx, s.Artifacts))
		try.Ok(s.bucket.Writable(ctx))
		s.home.Kept, s.home.Objects = s.bucket.In("artifacts"), &objects.Chunks{Context: ctx, Store: s.bucket}
	}
	answers := mlflow.New(s.Reader(), s.Writer(), s.home.Kept)
	for _, prefix := range mlflow.Prefixes {
		s.Mount(prefix, answers)
	}
	return nil
}

// keepUp removes artifacts of runs that are gone, and keeps the bucket up to date.
func (s *Server) keepUp(ctx context.Context) error {
	return errors.Join(mlflow.Sweep(ctx, s.Reader(), s.home.Kept), s.SaveHome(ctx))
}

// SaveHome moves chunks that are still in the home to the bucket, removes from there what nothing refers to, and copies the
// databases there unless they are as they were. Without a bucket it does nothing.
func (s *Server) SaveHome(ctx context.Context) (err error) {
	if s.bucket == nil {
		return nil
	}
	defer try.Caught(&err)
	chunks := &objects.Chunks{Context: ctx, Store: s.bucket}
	now := history.StampOf(s.Home)
	try.Ok(s.home.Offload(try.To(chunks.Before(time.Now().Add(-usedAfter))), chunks.Remove))
	if s.saved == now {
		return nil
	}
	folder := try.To(scratch.Make("bucket"))
	defer folder.Remove()
	path := filepath.Join(folder.Path, homeInBucket)
	try.To(backup.Write(s.Home, path))
	file := try.To(os.Open(path))
	defer file.Close()
	info := try.To(file.Stat())
	try.Ok(s.bucket.Put(ctx, homeInBucket, file, info.Size()))
	s.saved = now
	return nil
}

// FromBucket is what a server has kept in a bucket, as a side from which runs can be copied.
func FromBucket(ctx context.Context, address string) (_ transfer.Side, err error) {
	defer try.Caught(&err)
	bucket := try.To(objects.OpenBucket(ctx, address))
	content, _, err := bucket.Get(ctx, homeInBucket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "there are no runs in %s", address), "a server writes them there: drun serve --artifacts "+address)
	}
	try.Ok(err)
	defer content.Close()
	folder := try.To(scratch.Make("bucket"))
	defer try.CaughtOr(&err, folder.Remove)
	try.Ok(unpack(content, folder.Path))
	home := try.To(transfer.OpenHome(folder.Path, false))
	home.Kept, home.Objects, home.Closed = bucket.In("artifacts"), &objects.Chunks{Context: ctx, Store: bucket}, folder.Remove
	return home, nil
}

// unpack writes the files of an archive beneath a folder: databases, and spools of runs.
func unpack(archive io.Reader, folder string) (err error) {
	defer try.Caught(&err)
	root := try.To(os.OpenRoot(folder))
	defer root.Close()
	for in := tar.NewReader(archive); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		try.Ok(err)
		try.FailIf(header.Typeflag != tar.TypeReg || strings.HasPrefix(header.Name, "/"), "%s in the bucket is no copy of a home: it contains %.100q", homeInBucket, header.Name)
		try.Ok(root.MkdirAll(filepath.Dir(header.Name), sqldb.FolderMode))
		file := try.To(root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, sqldb.FileMode))
		_, err = io.Copy(file, in)
		try.Ok(errors.Join(err, file.Close()))
	}
}
