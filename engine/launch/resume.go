package launch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/history"
)

// origin is the checkpoint that --resume names.
type origin struct {
	id     int64
	uid    string
	ref    checkpoints.Ref // the step
	step   int64
	params []engine.Param
	store  *checkpoints.Store
}

// findOrigin reads RUN, RUN@STEP or RUN@best.
func findOrigin(db *history.DB, home, spec string) (*origin, error) {
	name, step, _ := strings.Cut(spec, "@")
	id, err := db.Find(name)
	if err != nil {
		return nil, err
	}
	show, err := db.Get(id)
	if err != nil {
		return nil, err
	}
	o := &origin{id: id, uid: show.UID}
	if o.ref, err = parseRef(step); err != nil {
		return nil, engine.Errorf(engine.ExitUsage, "--resume %s: %w", spec, err)
	}
	if o.store, err = checkpoints.Open(home); err != nil {
		return nil, err
	}
	info, err := o.store.Find(o.uid, o.ref)
	if err != nil {
		o.store.Close()
		if none := (*checkpoints.ErrNone)(nil); errors.As(err, &none) {
			return nil, &engine.Error{Code: engine.ExitUsage, Msg: "--resume " + spec + ": the run has no such checkpoint",
				Hint: "drun show " + name + " lists its checkpoints"}
		}
		return nil, err
	}
	o.step, o.ref = info.Step, checkpoints.Step(info.Step) // the run may go on, and save more
	for name, value := range show.Params {
		if value != nil { // None is what the recipe has by itself
			text, kind := paramText(value)
			o.params = append(o.params, engine.Param{Name: name, Value: text, Inherited: kind})
		}
	}
	return o, nil
}

// paramText writes a value as -p reads it, to the bit, and its type as a recipe
// names it.
func paramText(v any) (text, kind string) {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), "float"
	case bool:
		return strconv.FormatBool(v), "bool"
	case string:
		return v, "string"
	}
	return fmt.Sprint(v), "int"
}

func parseRef(step string) (checkpoints.Ref, error) {
	switch step {
	case "", "last":
		return checkpoints.Last, nil
	case "best":
		return checkpoints.Best, nil
	}
	n, err := strconv.ParseInt(step, 10, 64)
	if err != nil {
		return checkpoints.Ref{}, errors.New("want a step's number, last or best after the @")
	}
	return checkpoints.Step(n), nil
}

// inherit gives the parameters of the run that is resumed, overridden by given.
func (o *origin) inherit(given []engine.Param) []engine.Param {
	out := slices.Clone(o.params)
	for _, p := range given {
		i := slices.IndexFunc(out, func(q engine.Param) bool { return q.Name == p.Name })
		if i < 0 {
			out = append(out, p)
		} else {
			out[i] = p
		}
	}
	return out
}

// part gives a rank's entries of the checkpoint. In another world size what was
// equal on all ranks goes to all.
func (o *origin) part(ref checkpoints.Ref, rank, world int) (*engine.Restored, error) {
	info, err := o.store.Find(o.uid, ref)
	if err != nil {
		return nil, err
	}
	at := checkpoints.Step(info.Step)
	out := &engine.Restored{Found: true, Step: info.Step, WorldSize: info.WorldSize}
	from := min(rank, info.WorldSize-1)
	_, entries, err := o.store.Load(o.uid, at, from)
	if err != nil {
		return nil, err
	}
	if info.WorldSize != world {
		for other := range info.WorldSize {
			if other == from {
				continue
			}
			_, theirs, err := o.store.Load(o.uid, at, other)
			if err != nil {
				return nil, err
			}
			entries = slices.DeleteFunc(entries, func(e checkpoints.Entry) bool {
				i := slices.IndexFunc(theirs, func(t checkpoints.Entry) bool { return t.Name == e.Name })
				return i < 0 || theirs[i].DType != e.DType || !slices.Equal(theirs[i].Shape, e.Shape) || !bytes.Equal(theirs[i].Data, e.Data)
			})
		}
	}
	for _, e := range entries {
		out.Entries = append(out.Entries, engine.Entry{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data})
	}
	return out, nil
}
