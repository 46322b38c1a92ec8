package data

import (
	"sync"

	"drun/starlib/data/picture"
)

// readAhead decodes the pictures of upcoming batches on other threads. A picture depends only on its number and the epoch, so
// its bits do not depend on which thread decodes it, or when.
type readAhead struct {
	epoch   int
	ready   map[place]func() result // returns the picture, decoding it if no thread has begun to
	slots   chan struct{}           // one for each picture being decoded
	running sync.WaitGroup
	stopped chan struct{}
}

// place identifies a picture: the items that decode it, and its number among them.
type place struct {
	of *images
	i  int
}

type result struct {
	picture *picture.Picture
	report  func()
	err     error
}

func newReadAhead(epoch, threads int) *readAhead {
	return &readAhead{epoch: epoch, ready: map[place]func() result{}, slots: make(chan struct{}, threads), stopped: make(chan struct{})}
}

// begin starts decoding a sample, unless that would call a function of the recipe.
func (r *readAhead) begin(it items, i int) {
	at, ok := source(it, i)
	if !ok || r.ready[at] != nil {
		return
	}
	read := sync.OnceValue(func() result { return at.of.read(r.epoch, at.i) })
	r.ready[at] = read
	r.running.Go(func() {
		select {
		case r.slots <- struct{}{}:
			read()
			<-r.slots
		case <-r.stopped:
		}
	})
}

// stop waits for decoding under way.
func (r *readAhead) stop() {
	close(r.stopped)
	r.running.Wait()
}

// source returns the picture that a sample is made from.
func source(it items, i int) (place, bool) {
	switch it := it.(type) {
	case *images:
		return place{it, i}, true
	case *subset:
		return source(it.of, it.index[i])
	case *chain:
		part, n := it.at(i)
		return source(part, n)
	case *mapped:
		return source(it.of, i)
	case *cached:
		if it.kept[i] == nil {
			return source(it.of, i)
		}
	}
	return place{}, false
}

// take returns a picture that was decoded ahead, or decodes it.
func (a *access) take(im *images, i int) result {
	if a.ahead != nil {
		at := place{im, i}
		if read := a.ahead.ready[at]; read != nil {
			delete(a.ahead.ready, at)
			return read()
		}
	}
	return im.read(a.epoch, i)
}
