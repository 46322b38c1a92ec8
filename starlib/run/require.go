package run

import (
	"fmt"
	"math"
	"strings"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// logged is the latest value of a metric that this rank has recorded.
type logged struct {
	step  int64
	value float64
}

type requirement struct {
	metric, op string
	limit      float64
	abort      bool
	at         string // position of the call
}

// comparisons are the operators of run.require; all are false for NaN.
var comparisons = map[string]func(a, b float64) bool{
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
	"==": func(a, b float64) bool { return a == b },
	"!=": func(a, b float64) bool { return a < b || a > b },
}

// RequirementError says that a metric violates a run.require.
type RequirementError struct{ What string }

func (e *RequirementError) Error() string { return e.What }

func (e *RequirementError) ExitCode() exit.Code { return exit.Requirement }

// Permanent returns true: a restart would violate it again.
func (e *RequirementError) Permanent() bool { return true }

func (r *Run) require(c *starlib.Call) (starlark.Value, error) {
	q := requirement{metric: c.String("metric"), op: c.String("op"), limit: c.Float("value"), abort: c.Bool("abort"), at: c.Position().String()}
	try.Ok(checkName("a metric's name", q.metric))
	try.FailIf(comparisons[q.op] == nil, "op must be one of < <= > >= == !=, not %q", q.op)
	try.FailIf(math.IsNaN(q.limit), "the value is nan, which cannot be compared")
	r.required = append(r.required, q)
	if last := r.last[q.metric]; last != nil && q.abort {
		return nil, q.check(last)
	}
	return nil, nil
}

func (q *requirement) check(l *logged) error {
	if comparisons[q.op](l.value, q.limit) {
		return nil
	}
	return &RequirementError{fmt.Sprintf("metric %s is %v at step %d, but must be %s %v (%s)", q.metric, l.value, l.step, q.op, q.limit, q.at)}
}

// logged records a value, and ends the recipe if it violates a requirement with abort.
func (r *Run) logged(metric string, step int64, value float64) (err error) {
	defer try.Caught(&err)
	l := r.last[metric]
	if l == nil {
		l = &logged{}
		r.last[metric] = l
	}
	*l = logged{step, value}
	for i := range r.required {
		if q := &r.required[i]; q.abort && q.metric == metric {
			try.Ok(q.check(l))
		}
	}
	return nil
}

// lastState returns the latest values of the required metrics, for checkpoints: a run resumed at its end may log nothing
// more. It is nil if there are none.
func (r *Run) lastState() *starlark.Dict {
	var state *starlark.Dict
	for _, q := range r.required {
		if l := r.last[q.metric]; l != nil {
			if state == nil {
				state = starlark.NewDict(len(r.required))
			}
			_ = state.SetKey(starlark.String(q.metric), starlark.Tuple{starlark.MakeInt64(l.step), starlark.Float(l.value)}) // a new dict takes any key
		}
	}
	return state
}

// setLast restores what lastState returned; false if it is damaged.
func (r *Run) setLast(state *starlark.Dict) bool {
	for _, kv := range state.Items() {
		name, isName := starlark.AsString(kv[0])
		pair, isPair := kv[1].(starlark.Tuple)
		if !isName || !isPair || len(pair) != 2 {
			return false
		}
		number, isInt := pair[0].(starlark.Int)
		step, fits := number.Int64()
		value, isFloat := pair[1].(starlark.Float)
		if !isInt || !fits || !isFloat {
			return false
		}
		r.last[name] = &logged{step, float64(value)}
	}
	return true
}

// Finish checks, once main has returned, what the recipe requires of the last values that this rank has recorded.
func (r *Run) Finish() error {
	var missed []string
	for i := range r.required {
		q := &r.required[i]
		if last := r.last[q.metric]; last != nil {
			if err := q.check(last); err != nil {
				missed = append(missed, err.Error())
			}
		} else if r.rank.Rank == 0 {
			missed = append(missed, fmt.Sprintf("metric %s was never logged, but must be %s %v (%s)", q.metric, q.op, q.limit, q.at))
		}
	}
	if len(missed) == 0 {
		return nil
	}
	return &RequirementError{strings.Join(missed, "\n")}
}

func (r *Run) watchNaN(c *starlib.Call) (starlark.Value, error) {
	if r.Tensors == nil {
		return nil, nil
	}
	thread, abort := c.Thread, c.Bool("abort")
	r.Tensors.Watch = func(op string, out *tensor.Tensor, inputs []*tensor.Tensor) {
		what, given := tensor.NotFinite(op, out, inputs)
		if what == "" || what == "infinite" && given { // infinite operands, such as a mask, are not the operation's fault
			return
		}
		r.Tensors.Watch = nil // only the first is reported
		text := fmt.Sprintf("the result of %s on rank %d is %s", op, r.rank.Rank, strings.ToLower(what))
		if given {
			text += ", as is what it was given"
		}
		if abort && r.Tensors.Fail != nil {
			r.Tensors.Fail(&RequirementError{text})
			return // the error has the position
		}
		text = fmt.Sprintf("%s: %s", starlib.Position(thread), text)
		r.recorder.Note(records.Note{Text: text})
		if thread.Print != nil {
			thread.Print(thread, text)
		}
	}
	return nil, nil
}
