package sdk

import (
	"context"
	"net/rpc"

	"drun/collective"
	"drun/plugins/internal/wire"
)

// store is drun's key-value store as the plugin sees it.
type store struct{ drun *rpc.Client }

func (s store) Set(ctx context.Context, key string, value []byte) error {
	return s.ask(ctx, "Store.Set", wire.Entry{Key: key, Value: value}, new(struct{}))
}

func (s store) Get(ctx context.Context, key string) ([]byte, error) {
	value := new([]byte)
	if err := s.ask(ctx, "Store.Get", key, value); err != nil {
		return nil, err
	}
	return *value, nil
}

func (s store) ask(ctx context.Context, what string, request, reply any) error {
	var err error
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		err = s.drun.Call(what, request, reply)
	}()
	if early := collective.Wait(ctx, replied); early != nil {
		return early
	}
	return err
}
