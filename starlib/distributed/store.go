package distributed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// Store is the run's key-value store, as recipes use it. MultiGet, Wait and Pop wait until the keys exist, within their
// WaitLimit.
type Store interface {
	MultiSet(ctx context.Context, keys []string, values [][]byte) error
	MultiGet(ctx context.Context, keys []string) ([][]byte, error)
	Add(ctx context.Context, key string, amount int64) (int64, error)
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)
	Append(ctx context.Context, key string, value []byte) error
	Wait(ctx context.Context, keys []string) error
	Check(ctx context.Context, keys []string) (bool, error)
	Delete(ctx context.Context, key string) (bool, error)
	NumKeys(ctx context.Context) (int, error)
	Keys(ctx context.Context) ([]string, error)
	Push(ctx context.Context, queue string, value []byte) error
	Pop(ctx context.Context, queue string) ([]byte, error)
	Queued(ctx context.Context, queue string) (int, error)

	In(space string) Store // a part of this store, with keys of its own
	Alone() Store          // a store of this rank
	File(change func(func(content []byte) ([]byte, error)) error) Store
}

// storeValue is dist.store, or a store that it made.
type storeValue struct {
	starlib.Opaque
	world *World
	store Store                 // nil where a recipe is only checked
	limit *collective.WaitLimit // of waits; nil: the run's
}

func (s *storeValue) String() string      { return "<store>" }
func (s *storeValue) AttrNames() []string { return storeMethods.AttrNames() }
func (s *storeValue) Attr(name string) (starlark.Value, error) {
	return storeMethods.Attr(s, name)
}

var storeMethods = &starlib.Methods{
	Type: "store",
	Doc: "A key-value store of strings and bytes that all ranks share, dist.store. Its calls are not collectives: a rank\n" +
		"may make them at any time. A wait fails if a key is not set within timeout, in seconds, by default\n" +
		"the run's (--timeout). A key may have up to 4 KiB, a value up to 16 MiB. Values come back as strings,\n" +
		"or as bytes with binary = True.",
	Defs: []*starlib.Def{
		storeMethod(`set(key: string, value: string | bytes)`, "Sets a key to a value.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return nil, s.MultiSet(ctx, []string{c.String("key")}, [][]byte{content(c.Arg("value"))})
			}),
		storeMethod(`get(key: string, timeout: number = None, binary: bool = False) -> string | bytes`, "Waits until a key is set, and returns its value.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return shown(c, try.To(s.MultiGet(ctx, []string{c.String("key")}))[0]), nil
			})),
		storeMethod(`add(key: string, amount: int = 1) -> int`, "Adds to a counter, which starts at 0, and returns the sum. get returns it as a string.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				n := c.Int("amount")
				sum, err := s.Add(ctx, c.String("key"), int64(n))
				return starlark.MakeInt64(sum), err
			}),
		storeMethod(`compare_set(key: string, expected: string | bytes, desired: string | bytes) -> string`,
			"Changes a key's value from expected to desired; if expected is \"\", also sets a key that is not set.\n"+
				"Returns the value afterwards: desired if it was changed, and expected if the key is still not set.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				value, err := s.CompareSet(ctx, c.String("key"), content(c.Arg("expected")), content(c.Arg("desired")))
				return starlark.String(value), err
			}),
		storeMethod(`append(key: string, value: string | bytes)`, "Appends to a key's value, which starts as \"\".",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return nil, s.Append(ctx, c.String("key"), content(c.Arg("value")))
			}),
		storeMethod(`wait(keys: iterable, timeout: number = None)`, "Waits until all keys are set. The error names those that are not.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				keys := try.To(texts(c, "keys"))
				return nil, s.Wait(ctx, keys)
			})),
		storeMethod(`check(keys: iterable) -> bool`, "Whether all keys are set. It does not wait.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				keys := try.To(texts(c, "keys"))
				all, err := s.Check(ctx, keys)
				return starlark.Bool(all), err
			}),
		storeMethod(`delete(key: string) -> bool`, "Removes a key, and returns whether it was set.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				existed, err := s.Delete(ctx, c.String("key"))
				return starlark.Bool(existed), err
			}),
		storeMethod(`num_keys() -> int`, "How many keys are set.",
			func(ctx context.Context, _ *starlib.Call, s Store) (starlark.Value, error) {
				n, err := s.NumKeys(ctx)
				return starlark.MakeInt(n), err
			}),
		storeMethod(`list_keys() -> list`, "The keys that are set, sorted.",
			func(ctx context.Context, _ *starlib.Call, s Store) (starlark.Value, error) {
				keys := try.To(s.Keys(ctx))
				return starlark.NewList(each.Of(keys, func(key string) starlark.Value { return starlark.String(key) })), nil
			}),
		storeMethod(`queue_push(key: string, value: string | bytes)`, "Adds a value to the end of a queue. Queues are not among the keys.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return nil, s.Push(ctx, c.String("key"), content(c.Arg("value")))
			}),
		storeMethod(`queue_pop(key: string, block: bool = True, timeout: number = None, binary: bool = False) -> string | bytes`,
			"Takes the first value out of a queue, each for one rank only. Waits until there is one; with block = False an\n"+
				"empty queue is an error.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				if !c.Bool("block") {
					ctx = collective.Within(ctx, time.Nanosecond)
				}
				value, err := s.Pop(ctx, c.String("key"))
				if err != nil && !c.Bool("block") && errors.Is(err, collective.ErrTimeout) {
					err = fmt.Errorf("queue %q is empty", c.String("key"))
				}
				return shown(c, value), err
			})),
		storeMethod(`queue_len(key: string) -> int`, "How many values a queue has.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				n, err := s.Queued(ctx, c.String("key"))
				return starlark.MakeInt(n), err
			}),
		storeMethod(`set_timeout(timeout: number)`, "Sets how long this rank's waits on the store last at most, in seconds.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				c.Recv.(*storeValue).limit = try.To(c.Recv.(*storeValue).world.until(c))
				return nil, nil
			}),
		storeMethod(`prefix(prefix: string, store: store = None) -> store`, "A part of a store, by default of this one, with keys and queues of its own.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				if !c.IsNone("store") {
					s = c.Arg("store").(*storeValue).store
				}
				return c.Recv.(*storeValue).made(s.In("prefix " + c.String("prefix"))), nil
			}),
		storeMethod(`hash() -> store`, "A store of this rank alone, in its memory.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return c.Recv.(*storeValue).made(s.Alone()), nil
			}),
		storeMethod(`file(name: string) -> store`, "A store in a file of the run's own folder of outputs. Ranks that see that folder share it, and it outlasts the run.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				own, name := c.Recv.(*storeValue), c.String("name")
				outputs := own.world.rank.Outputs
				_, err := outputs.Path(name)
				return own.made(s.File(func(fn func([]byte) ([]byte, error)) error { return outputs.Change(name, fn) })), err
			}),
		storeMethod(`tcp(host: string, port: int, is_master: bool = False, timeout: number = None) -> store`,
			"A store of its own for the ranks that name the same host and port. One of them says that it is the master; the\n"+
				"others wait for that. It is kept where the run's own store is, and nothing listens at the port: only ranks of\n"+
				"this run can meet there.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				own, host, port := c.Recv.(*storeValue), c.String("host"), c.Int("port")
				try.FailIf(host == "" || port < 1 || port > 65535, "want a host and a port from 1 to 65535, got %q and %d", host, port)
				at := fmt.Sprintf("%s:%d", host, port)
				masters := s.In("tcp")
				if c.Bool("is_master") {
					me := strconv.Itoa(own.world.rank.Rank)
					master := try.To(masters.CompareSet(ctx, at, nil, []byte(me)))
					try.FailIf(string(master) != me, "rank %s is already the master of the store at %s", master, at)
				} else if err := masters.Wait(ctx, []string{at}); err != nil {
					return nil, fmt.Errorf("no rank has become the master of the store at %s: %w", at, err)
				}
				return own.made(s.In("tcp " + at)), nil
			})),
		storeMethod(`multi_get(keys: iterable, timeout: number = None, binary: bool = False) -> list`, "Waits until all keys are set, and returns their values, read in one step.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				values := try.To(s.MultiGet(ctx, try.To(texts(c, "keys"))))
				return starlark.NewList(each.Of(values, func(v []byte) starlark.Value { return shown(c, v) })), nil
			})),
		storeMethod(`multi_set(keys: iterable, values: iterable)`, "Sets every key to its value, all in one step.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				keys := try.To(texts(c, "keys"))
				var data [][]byte
				for v := range starlark.Elements(c.Arg("values").(starlark.Iterable)) {
					switch v.(type) {
					case starlark.String, starlark.Bytes:
						data = append(data, content(v))
					default:
						return nil, fmt.Errorf("argument values: want strings or bytes, got %s", v.Type())
					}
				}
				try.FailIf(len(keys) != len(data), "%d keys, but %d values", len(keys), len(data))
				return nil, s.MultiSet(ctx, keys, data)
			}),
	},
}

type storeCall func(context.Context, *starlib.Call, Store) (starlark.Value, error)

// storeMethod declares a method of dist.store.
func storeMethod(sig, doc string, fn storeCall) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		s := c.Recv.(*storeValue)
		w := s.world
		try.FailIf(w.rank.Stage == starlib.Loading, "the store cannot be used at top level: call it in main()")
		if w.rank.At != nil {
			w.rank.At(c.Thread)
		}
		try.FailIf(s.store == nil, "there is no store here")
		return fn(cmp.Or(s.limit, w.within), c, s.store)
	}}
}

// timed bounds a call by its argument timeout.
func timed(fn storeCall) storeCall {
	return func(_ context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
		own := c.Recv.(*storeValue)
		ctx := try.To(own.world.until(c))
		if c.IsNone("timeout") && own.limit != nil {
			ctx = own.limit
		}
		return fn(ctx, c, s)
	}
}

// made is a store that this one made.
func (s *storeValue) made(store Store) *storeValue {
	return &storeValue{s.Opaque, s.world, store, s.limit}
}

// content returns the bytes of a value: a string or bytes.
func content(v starlark.Value) []byte {
	if b, ok := v.(starlark.Bytes); ok {
		return []byte(b)
	}
	text, _ := starlark.AsString(v)
	return []byte(text)
}

// shown returns a value as the argument binary asks for it.
func shown(c *starlib.Call, value []byte) starlark.Value {
	if c.Bool("binary") {
		return starlark.Bytes(value)
	}
	return starlark.String(value)
}

// texts reads an argument that lists strings.
func texts(c *starlib.Call, name string) ([]string, error) {
	var out []string
	for v := range starlark.Elements(c.Arg(name).(starlark.Iterable)) {
		s, ok := starlark.AsString(v)
		try.FailIf(!ok, "argument %s: want strings, got %s", name, v.Type())
		out = append(out, s)
	}
	return out, nil
}
