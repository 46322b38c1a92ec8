package serve

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/s3test"
	"drun/runs/serve/objects"
	"drun/runs/transfer"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A run that was copied to a server with a bucket is had from the bucket alone, with its weights, which take no room on the server.
func TestBucketAlone(t *testing.T) {
	s3test.Start(t)
	ctx := transfer.Local(t.Context())
	own := t.TempDir()
	db, err := history.Open(own)
	ok(t, err)
	run, err := db.Begin(history.RunInfo{Name: "calm-otter", Recipe: "train.star", WorldSize: 1, Backend: "shm"})
	ok(t, err)
	ok(t, run.BeginAttempt())
	store, err := checkpoints.Open(own)
	ok(t, err)
	weights := bytes.Repeat([]byte("weights of a model, which are large. "), 100_000)
	for step := range int64(2) {
		copy(weights, []byte{byte(step)})
		info, err := store.Save(run.UID, step, nil, map[int][]checkpoints.Entry{0: {{Name: "w", Kind: "tensor", DType: "uint8", Shape: []int{len(weights)}, Data: weights}}})
		ok(t, err)
		ok(t, run.Write(&history.Batch{Checkpoints: []history.Checkpoint{{Step: step, Bytes: info.Bytes, Time: info.Time}}}))
	}
	ok(t, run.Write(&history.Batch{End: &history.End{Status: history.Done, Seconds: 1}}))
	ok(t, store.Close())
	ok(t, db.Close())

	copyAll := func(from, to transfer.Side) *transfer.Result {
		t.Helper()
		runs, err := transfer.Find(ctx, from, transfer.Choice{Refs: []string{"calm-otter"}})
		ok(t, err)
		r, err := transfer.Copy(ctx, from, to, runs, transfer.Options{Weights: "all"})
		ok(t, err)
		return r
	}
	mine, err := transfer.OpenHome(own, false)
	ok(t, err)
	home := filepath.Join(t.TempDir(), "server")
	server, err := New(t.Context(), Options{Home: home, Artifacts: "s3://weights/team"})
	ok(t, err)
	if r := copyAll(mine, server.home); r.Sent < int64(len(weights)) {
		t.Errorf("sent %d bytes", r.Sent)
	}
	// What was there before the bucket moves there, and nothing refers to it twice.
	ok(t, server.SaveHome(t.Context()))
	packs, err := filepath.Glob(filepath.Join(home, "checkpoints", "*.db"))
	ok(t, err)
	info, err := os.Stat(filepath.Join(home, "checkpoints.db"))
	ok(t, err)
	if len(packs) > 0 || info.Size() > 1<<20 {
		t.Errorf("the server's home has %v, and a catalog of %d bytes", packs, info.Size())
	}
	at := server.saved
	ok(t, server.SaveHome(t.Context()))
	if server.saved != at {
		t.Error("the home was copied again though it is as it was")
	}
	ok(t, server.Close())
	ok(t, mine.Close())
	ok(t, os.RemoveAll(home))
	ok(t, os.RemoveAll(own))

	bucket, err := FromBucket(t.Context(), "s3://weights/team")
	ok(t, err)
	other := t.TempDir()
	theirs, err := transfer.OpenHome(other, true)
	ok(t, err)
	copyAll(bucket, theirs)
	ok(t, bucket.Close())
	ok(t, theirs.Close())
	store, err = checkpoints.OpenReadOnly(other)
	ok(t, err)
	defer store.Close()
	_, entries, err := store.Load(run.UID, checkpoints.Last, 0)
	ok(t, err)
	if !bytes.Equal(entries[0].Data, weights) {
		t.Error("the weights differ")
	}
	if _, err := FromBucket(t.Context(), "s3://weights/nobody"); err == nil {
		t.Error("an empty bucket has runs")
	}
}

// A server whose credentials may only read its bucket says so when it starts; runs can be had from there with them.
func TestReadOnlyBucket(t *testing.T) {
	address := s3test.Start(t)
	server, err := New(t.Context(), Options{Home: t.TempDir(), Artifacts: "s3://weights/team"})
	ok(t, err)
	ok(t, server.SaveHome(t.Context()))
	ok(t, server.Close())
	s3test.Reader(t, address)
	_, err = New(t.Context(), Options{Home: t.TempDir(), Artifacts: "s3://weights/team"})
	if unavailable := (*objects.Unavailable)(nil); !errors.As(err, &unavailable) || exit.CodeOf(err) != exit.Storage ||
		!strings.Contains(err.Error(), "the bucket weights at http://"+address) || !strings.Contains(exit.HintOf(err), "the credentials may not do that: the server needs s3:ListBucket, s3:GetObject, s3:PutObject") {
		t.Errorf("it says %v, hint %q", err, exit.HintOf(err))
	}
	bucket, err := FromBucket(t.Context(), "s3://weights/team")
	ok(t, err)
	ok(t, bucket.Close())
}
