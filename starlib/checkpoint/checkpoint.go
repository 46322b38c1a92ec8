// Package checkpoint saves and restores the state of a recipe: modules, optimizers, loaders, generators, tensors and
// plain values. A Store, which engine/worker provides, decides where the bytes go.
package checkpoint

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// Store keeps the ranks' parts of checkpoints.
type Store interface {
	// Save takes a copy of this rank's part. The checkpoint is complete once every rank's part is durable; an error
	// in between is returned by a later call, or ends the run.
	//
	// With memory, only drun's own memory holds it, for a restart of the run's ranks, until the next such save replaces it.
	// Save does not use the part's data after it returns.
	Save(step int64, score *float64, memory bool, part []Item) error
	// Restore returns this rank's part: step is a number, "last" or "best". It is nil, without an error, if there is
	// nothing to restore.
	Restore(step string) (*Restored, error)
	// Say shows the user a line.
	Say(line string)
}

// Keeper is a Store that is told the recipe's state at each save and restore.
type Keeper interface {
	Holds(State)
}

// State is the live state of a recipe: its values go on changing.
type State struct {
	dict   *starlark.Dict
	always []Named
}

// Items are the values of the state now; tensors' Data is their own memory, not a copy.
func (s State) Items() ([]Item, error) { return collect(s.dict, s.always) }

// Tensors returns the memory of the state's tensors, in a fixed order: also those within lists and dicts, up to a
// limit, so that this costs little. What cannot be saved is left out. A replay compares digests of them with those of
// older versions, so neither the choice of tensors nor what counts towards the limit may change.
func (s State) Tensors() [][]byte {
	w := &walk{left: maxWalk}
	for _, kv := range s.dict.Items() {
		w.add(kv[1], 0)
	}
	return w.parts
}

// maxWalk bounds the values that Tensors looks at.
const maxWalk = 1000

type walk struct {
	parts [][]byte
	left  int
}

func (w *walk) add(v starlark.Value, depth int) {
	if w.left--; w.left < 0 || depth > 10 {
		return
	}
	switch v := v.(type) {
	case *startensor.Value:
		if data, err := tensor.Contiguous(v.Tensor()); err == nil {
			w.parts = append(w.parts, data.Content())
		}
	case starlib.Stateful:
		for _, e := range v.State() {
			w.add(e.Value, depth+1)
		}
	case *starlark.Dict:
		for _, value := range v.Entries() {
			if w.add(value, depth+1); w.left < 0 {
				return
			}
		}
	case starlark.Indexable: // a list, tuple or text
		for i := 0; i < v.Len() && w.left >= 0; i++ {
			w.add(v.Index(i), depth+1)
		}
	}
}

// Restored is a rank's part of a checkpoint.
type Restored struct {
	Step   int64
	Run    string   // the run that saved it, for messages
	Score  *float64 // nil: none was given
	Saved  int      // ranks that saved it
	World  int      // ranks of this run
	Part   []Item   // this rank's; rank 0's where Saved and World differ
	Differ []string // names under which the ranks had different values; only where Saved and World differ
	Cut    []Item   // the tensors in Differ, with their rows divided anew: this rank's rows, if they are shards
	First  bool     // this rank is the first to restore it
}

// Module makes the checkpoint module. always lists values that every checkpoint
// holds besides the recipe's own, such as the streams of random numbers; agree is
// called for each save and restore, and returns an error with the text what if the ranks' keys differ.
func Module(rank *starlib.Rank, ctx *tensor.Context, store Store, always []Named, agree func(c *starlib.Call, key, what string) error) *starlib.Module {
	return &starlib.Module{
		Name: "checkpoint",
		Doc:  "Saving and restoring a recipe's state, and files of weights.",
		Defs: append([]*starlib.Def{
			{Sig: `save(state: dict, step: int, score: number = None, memory: bool = False)`,
				Doc: "Saves a state: a dict from names to modules, optimizers, loaders, generators, tensors or plain\n" +
					"values. Every rank must call it with the same step. The checkpoint exists once the parts of all ranks\n" +
					"are durable; after a crash before that, the previous one is the newest. save returns once the\n" +
					"state is copied; the next save, a restore and the end of the run wait until it is durable, and raise\n" +
					"any error in writing it. score is what step = \"best\" compares; NaN counts as no score.\n" +
					"memory = True keeps it in drun's memory only, until the next one replaces it: it survives the death\n" +
					"of any rank, for a restart (drun run --max-restarts), but not the death of drun.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					step := c.Int("step")
					var score *float64
					if !c.IsNone("score") {
						s := c.Float("score")
						score = &s
					}
					state := c.Arg("state").(*starlark.Dict)
					part := try.To(collect(state, always))
					holds(store, state, always)
					key := fmt.Sprint("step ", step)
					if c.Bool("memory") {
						key += " in memory"
					}
					try.Ok(agree(c, key, "the ranks save different steps"))
					err := store.Save(int64(step), score, c.Bool("memory"), part)
					runtime.KeepAlive(part) // and with it the memory of its tensors
					return nil, err
				}},
			{Sig: `restore(state: dict, step: int | string = "last", strict: bool = True) -> int`,
				Doc: "Restores a state in place, on every rank: tensors, also those in lists, dicts, tuples and structs, get the saved\n" +
					"values; lists and dicts get the saved items; other plain values are put back into the dict. Returns\n" +
					"the step, or None when there is nothing to restore.\n" +
					"step = \"last\" is this run's newest checkpoint or, before it has saved one, that of --resume; a\n" +
					"number is that step of this run, or else of the runs it was resumed from; \"best\" is the checkpoint with\n" +
					"the highest score of all of these. A line on stderr says which one was restored. Tensors that are\n" +
					"missing or differ in shape or dtype are an error that lists them all; strict = False restores\n" +
					"what matches. A file of weights (--resume FILE.safetensors) restores only modules and tensors, by the names\n" +
					"of save_file; the rest of the state stays as it is.\n" +
					"With another world size, values that were equal on all ranks go to every rank, loaders continue\n" +
					"after the same part of the epoch, random streams that belong to one rank start afresh, tensors that are\n" +
					"sharded by rows (dist.shard(t, 0)) are divided anew (the line says so), and other values that differed\n" +
					"are an error.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					step := c.Arg("step").String()
					if s, ok := starlark.AsString(c.Arg("step")); ok {
						if step = s; step != "last" && step != "best" {
							return nil, fmt.Errorf("argument step: want a number, \"last\" or \"best\", got %q", s)
						}
					}
					state := c.Arg("state").(*starlark.Dict)
					try.Ok(agree(c, "restore "+step, "the ranks restore different steps"))
					found, err := store.Restore(step)
					if err != nil || found == nil {
						holds(store, state, always)
						return nil, err
					}
					notes, err := apply(ctx, state, always, found, c.Bool("strict"))
					try.FailIf(err != nil, "step %d: %w", found.Step, err)
					holds(store, state, always)
					found.Part = nil
					runtime.GC() // frees the checkpoint's memory, of which Go does not know, once no tensor needs it
					if found.First {
						store.Say(found.line(step, notes))
					}
					return starlark.MakeInt64(found.Step), nil
				}},
		}, files(rank, ctx)...),
	}
}

func holds(store Store, state *starlark.Dict, always []Named) {
	if k, is := store.(Keeper); is {
		k.Holds(State{state, always})
	}
}

// Named is a value that every checkpoint holds.
type Named struct {
	Name  string
	Value starlib.Stateful
}

// line says which checkpoint was restored, and how.
func (r *Restored) line(step string, notes []string) string {
	text := fmt.Sprintf("checkpoint.restore: step %d of %s", r.Step, r.Run)
	if step == "best" && r.Score != nil {
		text += fmt.Sprintf(", the best (score %v)", *r.Score)
	}
	return strings.Join(append([]string{text}, notes...), "; ")
}

// differences makes one error of all that does not match.
func differences(found []string) error {
	return errors.New("the checkpoint does not fit the state (strict = False restores what matches):\n  " + strings.Join(some(found), "\n  "))
}

// some shortens a long list.
func some(list []string) []string {
	const shown = 20
	if len(list) > shown {
		list = append(list[:shown:shown], fmt.Sprintf("… and %d more", len(list)-shown))
	}
	return list
}
