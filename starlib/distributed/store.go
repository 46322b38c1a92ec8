package distributed

import (
	"context"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// Store is the run's key-value store, as recipes use it. Get, MultiGet and Wait wait until the keys exist, within
// their WaitLimit.
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
}

// storeValue is dist.store.
type storeValue struct {
	starlib.Opaque
	world *World
	store Store // nil where a recipe is only checked
}

func (s *storeValue) String() string      { return "<store>" }
func (s *storeValue) AttrNames() []string { return storeMethods.AttrNames() }
func (s *storeValue) Attr(name string) (starlark.Value, error) {
	return storeMethods.Attr(s, name)
}

var storeMethods = &starlib.Methods{
	Type: "store",
	Doc: "A key-value store of strings that all ranks share, dist.store. Its calls are not collectives: a rank\n" +
		"may make them at any time. A wait fails if a key is not set within timeout, in seconds, by default\n" +
		"the run's (--timeout). A key may have up to 4 KiB, a value up to 16 MiB.",
	Defs: []*starlib.Def{
		storeMethod(`set(key: string, value: string)`, "Sets a key to a value.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return nil, s.MultiSet(ctx, []string{c.String("key")}, [][]byte{[]byte(c.String("value"))})
			}),
		storeMethod(`get(key: string, timeout: number = None) -> string`, "Waits until a key is set, and returns its value.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return starlark.String(try.To(s.MultiGet(ctx, []string{c.String("key")}))[0]), nil
			})),
		storeMethod(`add(key: string, amount: int = 1) -> int`, "Adds to a counter, which starts at 0, and returns the sum. get returns it as a string.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				n := c.Int("amount")
				sum, err := s.Add(ctx, c.String("key"), int64(n))
				return starlark.MakeInt64(sum), err
			}),
		storeMethod(`compare_set(key: string, expected: string, desired: string) -> string`,
			"Changes a key's value from expected to desired; if expected is \"\", also sets a key that is not set.\n"+
				"Returns the value afterwards: desired if it was changed, \"\" if the key is still not set.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				value, err := s.CompareSet(ctx, c.String("key"), []byte(c.String("expected")), []byte(c.String("desired")))
				return starlark.String(value), err
			}),
		storeMethod(`append(key: string, value: string)`, "Appends to a key's value, which starts as \"\".",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				return nil, s.Append(ctx, c.String("key"), []byte(c.String("value")))
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
		storeMethod(`multi_get(keys: iterable, timeout: number = None) -> list`, "Waits until all keys are set, and returns their values, read in one step.",
			timed(func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				values := try.To(s.MultiGet(ctx, try.To(texts(c, "keys"))))
				out := each.Of(values, func(v []byte) starlark.Value { return starlark.String(v) })
				return starlark.NewList(out), nil
			})),
		storeMethod(`multi_set(keys: iterable, values: iterable)`, "Sets every key to its value, all in one step.",
			func(ctx context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
				keys := try.To(texts(c, "keys"))
				values := try.To(texts(c, "values"))
				try.FailIf(len(keys) != len(values), "%d keys, but %d values", len(keys), len(values))
				data := each.Of(values, func(v string) []byte { return []byte(v) })
				return nil, s.MultiSet(ctx, keys, data)
			}),
	},
}

type storeCall func(context.Context, *starlib.Call, Store) (starlark.Value, error)

func storeMethod(sig, doc string, fn storeCall) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		s := c.Recv.(*storeValue)
		w := s.world
		try.FailIf(w.rank.Stage == starlib.Loading, "the store cannot be used at top level: call it in main()")
		if w.rank.At != nil {
			w.rank.At(c.Thread)
		}
		try.FailIf(s.store == nil, "there is no store here")
		return fn(w.within, c, s.store)
	}}
}

// timed bounds a call by its argument timeout.
func timed(fn storeCall) storeCall {
	return func(_ context.Context, c *starlib.Call, s Store) (starlark.Value, error) {
		ctx := try.To(c.Recv.(*storeValue).world.until(c))
		return fn(ctx, c, s)
	}
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
