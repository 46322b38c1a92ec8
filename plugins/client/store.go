package client

import (
	"context"
	"errors"

	"drun/collective"
	"drun/plugins/internal/wire"
)

// storeServer answers a plugin's requests to the key-value store.
type storeServer struct {
	ctx   context.Context // ends with the process
	store collective.Store
}

var errNoStore = errors.New("there is no key-value store")

func (s *storeServer) Set(e wire.Entry, _ *struct{}) error {
	if s.store == nil {
		return errNoStore
	}
	return s.store.Set(s.ctx, e.Key, e.Value)
}

func (s *storeServer) Get(key string, value *[]byte) (err error) {
	if s.store == nil {
		return errNoStore
	}
	*value, err = s.store.Get(s.ctx, key)
	return err
}
