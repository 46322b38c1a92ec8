package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"drun/internal/try"
)

// Chunks keeps chunks of checkpoints in a store, as files chunks/ab/ab…, by their SHA-256. It is a checkpoints.Objects.
type Chunks struct {
	Context context.Context
	Store   Store
}

func nameOf(sum string) string { return "chunks/" + sum[:2] + "/" + sum }

func (c *Chunks) Put(sum string, data []byte) error {
	return c.Store.Put(c.Context, nameOf(sum), bytes.NewReader(data), int64(len(data)))
}

// mostChunk is more bytes than a chunk has.
const mostChunk = 2 << 20

// Get reads a chunk, and again if the connection ends meanwhile.
func (c *Chunks) Get(sum string) (data []byte, err error) {
	for range 3 {
		if data, err = c.get(sum); err == nil || errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*Unavailable)) {
			break
		}
	}
	return data, err
}

func (c *Chunks) get(sum string) (_ []byte, err error) {
	defer try.Caught(&err)
	content, size := try.To2(c.Store.Get(c.Context, nameOf(sum)))
	defer content.Close()
	data := try.To(io.ReadAll(io.LimitReader(content, mostChunk)))
	try.FailIf(int64(len(data)) != size, "the chunk %s has %d bytes of %d", sum, len(data), size)
	return data, nil
}

func (c *Chunks) Remove(sum string) error { return c.Store.Remove(c.Context, nameOf(sum)) }

// Before lists the chunks that were written before a time.
func (c *Chunks) Before(at time.Time) (sums []string, err error) {
	defer try.Caught(&err)
	for _, folder := range try.To(c.Store.List(c.Context, "chunks")) {
		for _, chunk := range try.To(c.Store.List(c.Context, "chunks/"+folder.Name)) {
			if chunk.Modified.Before(at) {
				sums = append(sums, chunk.Name)
			}
		}
	}
	return sums, nil
}
