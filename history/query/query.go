// Package query evaluates the expressions with which the command line selects, sorts and shows runs: `drun runs
// --where EXPR --sort KEY --columns …`. An expression is Starlark over a run's fields, parameters and metrics; Load
// reads only what the expressions mention from the history.
package query

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/spelling"
	"drun/internal/try"
)

// Expr is an expression over a run.
type Expr struct {
	what, text string
	own        string // its part of text
	tree       syntax.Expr
	condition  condition       // set by Parse
	value      *leaf           // set by ParseList
	names      map[string]bool // the fields it names
	params     history.Names
	metrics    history.Names
}

// Error is an error in an expression (a usage error). It shows where in the text it is.
type Error struct {
	What string // the flag that had the expression
	Text string
	Pos  syntax.Position
	Msg  string
}

func (e *Error) Error() string {
	if !e.Pos.IsValid() {
		return fmt.Sprintf("%s: %s", e.What, e.Msg)
	}
	const around = 60 // characters shown on each side
	text, at := []rune(e.Text), max(int(e.Pos.Col)-1, 0)
	from, to := max(at-around, 0), min(at+around, len(text))
	return fmt.Sprintf("%s: column %d: %s\n    %s\n    %s^", e.What, e.Pos.Col, e.Msg, string(text[from:to]), strings.Repeat(" ", at-from))
}

func (e *Error) ExitCode() exit.Code { return exit.Usage }

func (e *Error) Hint() string {
	return `for example 'params.lr < 0.1 and metrics.acc.last > 0.95'; names: ` + strings.Join(Fields, " ") + ` params.X metrics.X`
}

var options = &syntax.FileOptions{Set: true}

// functions are the Starlark builtins that an expression may call: none that can run for ever without a Starlark
// step, as max(range(1 << 60)) would.
var functions = []string{"None", "True", "False", "abs", "all", "any", "bool", "float", "hasattr", "int", "len", "max", "min", "sorted", "str", "type", "zip"}

// Parse parses a condition for Match; what names its flag in errors, which are *Error.
func Parse(what, text string) (_ *Expr, err error) {
	defer try.Caught(&err)
	list := try.To(parse(what, text))
	if len(list) != 1 {
		return nil, &Error{What: what, Text: text, Msg: "want one condition, not several with commas between them"}
	}
	list[0].condition, err = branch(list[0].tree)
	return list[0], err
}

// ParseList parses expressions separated by commas, for Value.
func ParseList(what, text string) ([]*Expr, error) {
	list, err := parse(what, text)
	for _, e := range list {
		if e.value, err = newLeaf(e.tree); err != nil {
			break
		}
	}
	return list, err
}

// Limits of an expression that keep its values small: what it computes does not grow with its length squared.
const (
	maxText = 10_000 // bytes
	maxFor  = 2      // nested loops of comprehensions
)

func parse(what, text string) (_ []*Expr, err error) {
	defer try.Caught(&err)
	if len(text) > maxText {
		return nil, &Error{What: what, Msg: fmt.Sprintf("the expression has %d bytes, more than %d", len(text), maxText)}
	}
	text = strings.ReplaceAll(text, "\n", " ")
	fault := func(pos syntax.Position, format string, args ...any) error {
		return &Error{What: what, Text: text, Pos: pos, Msg: fmt.Sprintf(format, args...)}
	}
	if strings.TrimSpace(text) == "" {
		return nil, &Error{What: what, Msg: "the expression is empty"}
	}
	tree, err := options.ParseExpr(what, text, 0)
	if err != nil {
		var syn syntax.Error
		if errors.As(err, &syn) {
			switch {
			case strings.HasPrefix(syn.Msg, "got '='"):
				syn.Msg = "one = sets a value; equal is =="
			case strings.HasPrefix(syn.Msg, "got '&'") && strings.Contains(text, "&&"):
				syn.Msg = "&& is written and"
			case strings.HasPrefix(syn.Msg, "got '|'") && strings.Contains(text, "||"):
				syn.Msg = "|| is written or"
			}
			return nil, fault(syn.Pos, "%s", syn.Msg)
		}
		return nil, fault(syntax.Position{}, "%s", err)
	}
	parts := []syntax.Expr{tree}
	if tuple, ok := tree.(*syntax.TupleExpr); ok && !tuple.Lparen.IsValid() {
		parts = tuple.List
	}
	// Names first, for better messages: compiling resolves them again, as functions' parameters.
	known := func(name string) bool {
		return slices.Contains(Fields, name) || name == "params" || name == "metrics"
	}
	universal := func(name string) bool { return slices.Contains(functions, name) }
	if _, err := resolve.ExprOptions(options, tree, known, universal); err != nil {
		var faults resolve.ErrorList
		if errors.As(err, &faults) {
			return nil, fault(faults[0].Pos, "%s", noName(text, faults[0].Msg))
		}
		return nil, fault(syntax.Position{}, "%s", err)
	}
	offsets := make([]int, len(parts)+1)
	for i, part := range parts {
		start, _ := part.Span()
		offsets[i] = offset(text, start)
	}
	offsets[0], offsets[len(parts)] = 0, len(text)
	var list []*Expr
	for i, part := range parts {
		e := &Expr{what: what, text: text, names: map[string]bool{}}
		try.Ok(e.collect(part, fault))
		order(part)
		e.tree = part
		list = append(list, e)
		e.own = strings.TrimSpace(text[offsets[i]:offsets[i+1]])
		if i+1 < len(parts) {
			e.own = strings.TrimSpace(strings.TrimSuffix(e.own, ","))
		}
	}
	return list, nil
}

func (e *Expr) String() string { return e.own }

// offset is the index of a position in a one-line text.
func offset(text string, pos syntax.Position) int {
	column := int32(1)
	for i := range text {
		if column == pos.Col {
			return i
		}
		column++
	}
	return len(text)
}

// slashed is a metric or parameter whose name is not an identifier, such as metrics.val/loss.last.
var slashed = regexp.MustCompile(`\b(metrics|params)\.(\w+(?:[/-]\w+)+)`)

// noName adds to an error about an unknown name what was probably meant.
func noName(own, msg string) string {
	name, ok := strings.CutPrefix(msg, "undefined: ")
	if !ok || strings.Contains(name, " ") {
		return msg
	}
	msg = fmt.Sprintf("there is no name %s", name)
	for _, m := range slashed.FindAllStringSubmatch(own, -1) {
		if slices.Contains(strings.FieldsFunc(m[2], func(r rune) bool { return r == '/' || r == '-' })[1:], name) {
			return msg + fmt.Sprintf(": write %s[%q] for a name with other characters than letters, digits and _", m[1], m[2])
		}
	}
	if s, near := nearStatus(name); near {
		return msg + fmt.Sprintf(": a text has quotes, as in status == %q", s)
	}
	if near := spelling.Nearest(name, append(append([]string{"params", "metrics"}, Fields...), functions...)); near != "" {
		msg += fmt.Sprintf(": did you mean %s?", near)
	} else {
		msg += fmt.Sprintf(": a parameter is params.%s, a metric metrics.%s.last", name, name)
	}
	return msg
}

// collect notes what the expression needs of a run, and finds errors that do not depend on the run.
func (e *Expr) collect(tree syntax.Expr, fault func(syntax.Position, string, ...any) error) (err error) {
	read := map[string]*history.Names{"params": &e.params, "metrics": &e.metrics}
	accounted := map[*syntax.Ident]bool{}
	note := func(x syntax.Expr, name string) (of string) {
		id, ok := x.(*syntax.Ident)
		if ok && read[id.Name] != nil {
			read[id.Name].Some = append(read[id.Name].Some, name)
			accounted[id] = true
			return id.Name
		}
		return ""
	}
	loops := 0
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.DotExpr:
			note(n.X, n.Name.Name)
			if isMetric(n.X) && !slices.Contains(MetricValues, n.Name.Name) && err == nil {
				msg := fmt.Sprintf("a metric has no .%s, but .%s", n.Name.Name, strings.Join(MetricValues, " ."))
				if near := spelling.Nearest(n.Name.Name, MetricValues); near != "" {
					msg += fmt.Sprintf(": did you mean .%s?", near)
				} else {
					msg += `; a name with dots is written metrics["a.b"].last`
				}
				err = fault(n.Name.NamePos, "%s", msg)
			}
			if of := n.Name.Name; slices.Contains(growing, of) && !accounts(read, n.X) && err == nil {
				err = fault(n.Name.NamePos, "an expression has no .%s", of)
			}
		case *syntax.LambdaExpr:
			err = cmp.Or(err, fault(n.Lambda, "an expression has no lambda"))
		case *syntax.ForClause:
			if loops++; loops > maxFor {
				err = cmp.Or(err, fault(n.For, "an expression has at most %d loops", maxFor))
			}
		case *syntax.IndexExpr:
			if literal, ok := n.Y.(*syntax.Literal); ok && literal.Token == syntax.STRING {
				note(n.X, literal.Value.(string))
			}
		case *syntax.BinaryExpr:
			if literal, ok := n.X.(*syntax.Literal); ok && literal.Token == syntax.STRING && (n.Op == syntax.IN || n.Op == syntax.NOT_IN) {
				note(n.Y, literal.Value.(string))
			}
			for _, x := range []syntax.Expr{n.X, n.Y} {
				if isMetric(x) && n.Op != syntax.AND && n.Op != syntax.OR && err == nil {
					start, end := x.Span()
					if _, is := x.(*syntax.IndexExpr); is {
						end.Col++ // its span ends before the bracket
					}
					text := e.text[offset(e.text, start):offset(e.text, end)]
					err = fault(start, "%s is a metric: say %s.last, or .%s", text, text, strings.Join(MetricValues[1:], " ."))
				}
			}
		case *syntax.Ident:
			if names := read[n.Name]; names != nil && !accounted[n] && n.Binding != nil {
				names.All = true // used in a form that may need any of them
			}
			e.names[n.Name] = true
		}
		return err == nil
	})
	return err
}

// growing are methods whose result may be as long as the product of their arguments.
var growing = []string{"format", "join", "replace"}

// accounts reports whether x stands for values of a run: params, metrics or a metric.
func accounts(read map[string]*history.Names, x syntax.Expr) bool {
	id, is := x.(*syntax.Ident)
	return is && read[id.Name] != nil || isMetric(x)
}

// isMetric reports whether an expression is metrics.X.
func isMetric(x syntax.Expr) bool {
	switch x := x.(type) {
	case *syntax.DotExpr:
		id, ok := x.X.(*syntax.Ident)
		return ok && id.Name == "metrics"
	case *syntax.IndexExpr:
		id, ok := x.X.(*syntax.Ident)
		return ok && id.Name == "metrics"
	}
	return false
}

var errMissing = errors.New("the run has no such value")

// steps is how many Starlark steps an expression may take per run.
const steps = 100_000

// Evaluator evaluates expressions for one run after another.
type Evaluator struct {
	thread starlark.Thread
}

// NewEvaluator returns an evaluator.
func NewEvaluator() *Evaluator {
	ev := &Evaluator{}
	ev.thread.OnMaxSteps = func(t *starlark.Thread) { t.Cancel(tooManySteps) }
	return ev
}

const tooManySteps = "too many steps"

// Match reports whether the expression is true for a run. A name that the run lacks makes its part of the
// expression neither true nor false; the run matches if the rest makes it true.
func (ev *Evaluator) Match(e *Expr, run *history.Summary) (bool, error) {
	ev.thread.SetMaxExecutionSteps(ev.thread.ExecutionSteps() + steps)
	v, err := e.condition(ev, run)
	return v == yes, e.explain(err, run)
}

// Value is the expression's value for a run: nil if the run has no value for a name in it.
func (ev *Evaluator) Value(e *Expr, run *history.Summary) (starlark.Value, error) {
	ev.thread.SetMaxExecutionSteps(ev.thread.ExecutionSteps() + steps)
	v, err := e.value.eval(ev, run)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	return v, e.explain(err, run)
}

// explain adds the position in the expression and the run's name to an error.
func (e *Expr) explain(err error, run *history.Summary) error {
	if err == nil {
		return nil
	}
	found := &Error{What: e.what, Text: e.text, Msg: err.Error()}
	var eval *starlark.EvalError
	if errors.As(err, &eval) {
		found.Msg = eval.Msg
		for i := range eval.CallStack {
			if pos := eval.CallStack.At(i).Pos; pos.Filename() == e.what && pos.Col > 0 {
				found.Pos = pos
				break
			}
		}
		if strings.Contains(eval.Msg, tooManySteps) {
			found.Msg = fmt.Sprintf("the expression takes more than %d steps for one run", steps)
		}
	}
	found.Msg += fmt.Sprintf(" (run %d)", run.ID)
	return found
}

// Quote writes a text as an expression would.
func Quote(text string) string { return syntax.Quote(text, false) }

// nearStatus is the status that a word was probably meant for.
func nearStatus(word string) (s history.Status, near bool) {
	switch word {
	case "killed": // an older drun's word
		return history.Failed, true
	case "stopped", "stopped_early":
		return history.StoppedEarly, true
	case "canceled":
		return history.Cancelled, true
	}
	return history.Status(word), history.Status(word).Known()
}
