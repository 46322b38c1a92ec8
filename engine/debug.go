package engine

// Debug is what a debugger asks of a rank, which carries it out at its next step, or at once while it stands still.
type Debug struct {
	Breaks *[]Breakpoint `cbor:",omitempty"` // replaces all breakpoints
	Pause  bool          `cbor:",omitempty"` // the rank stops at its next step
	Go     *Go           `cbor:",omitempty"` // the rank goes on
	Look   *Look         `cbor:",omitempty"`
	Held   *bool         `cbor:",omitempty"` // whether some rank stands still: time limits stop meanwhile
	Leave  bool          `cbor:",omitempty"` // the debugger goes away: all breakpoints are removed, and the rank goes on
}

// Breakpoint says where ranks stop: at a line, before a collective, after an update, where a value is not finite, or where one
// has changed.
type Breakpoint struct {
	ID         int
	File       string // as positions show it
	Line       int32  // of a statement; 0: another kind
	Condition  string // evaluated at the line; "": none
	Collective string // its name, or "*" for all
	Updates    int64  // of the parameters, after which ranks stop; 0: another kind
	NotFinite  bool   // at the operation whose result is not finite, although what it was given is
	Changes    string // where the value of this expression changes in a function: it is only noted, see Note
	Func, At   string // that function, and its position
	Ranks      []int  // nil: all
}

// Moment is a point in a rank's execution of the recipe, which a repetition of the run reaches again.
type Moment struct {
	Updates int64  // of the parameters that the rank has made, see starlib.Rank
	Steps   uint64 // of the interpreter, since the latest of them or since the rank's start
	Digest  uint64 // of the parameters after that update; 0: there is none
	Locals  uint64 // digest of the recipe's variables then or, before the first update, at this moment; 0: unknown, since the debugger did not see them
}

// Same reports whether two moments are the same one, except for the variables.
func (m Moment) Same(other Moment) bool {
	m.Locals = other.Locals
	return m == other
}

// SameLocals reports whether the variables are equal, as far as that is known.
func (m Moment) SameLocals(other Moment) bool {
	return m.Locals == other.Locals || m.Locals == 0 || other.Locals == 0
}

// Before orders moments of one rank.
func (m Moment) Before(other Moment) bool {
	return m.Updates < other.Updates || m.Updates == other.Updates && m.Steps < other.Steps
}

// How far a rank goes on.
const (
	ToBreak = ""     // to the next breakpoint
	StepIn  = "in"   // to the next statement
	Over    = "over" // to the next statement of the same function, or of its caller
	Out     = "out"  // to the next statement of the caller
	ToMain  = "main" // to the first statement that main executes
)

// What a rank does where it meets a breakpoint.
const (
	Stop = ""
	Pass = "pass"
	Note = "note" // it goes on, and tells of all breakpoints that it has met when it has come to Go.Until
)

// Go says how far a rank goes on.
type Go struct {
	To       string
	Until    *Moment `cbor:",omitempty"` // it stops there in any case
	Save     *Target `cbor:",omitempty"` // it also stops in the call of checkpoint.save that this names
	Meets    string  `cbor:",omitempty"`
	Followed bool    `cbor:",omitempty"` // each statement on the way is followed, not only the latest: Stopped.Back is known
	Last     bool    `cbor:",omitempty"` // with Note: the latest ones are kept if there are many, not the first
	After    *Moment `cbor:",omitempty"` // with Note: only those since then are kept
}

// Look asks for values while the rank stands still.
type Look struct {
	ID    uint64 // the answer has it too
	Frame int    // of Stopped.Frames
	Scope string // Locals or Globals; "": see below
	Of    int    // a value's number: its parts
	Expr  string // evaluated in the frame
}

// The scopes of a frame.
const (
	Locals  = "locals"
	Globals = "globals"
)

// Debugged is what a rank tells the debugger.
type Debugged struct {
	Stopped *Stopped `cbor:",omitempty"`
	Waits   bool     `cbor:",omitempty"` // for other ranks, for a while now
	Goes    bool     `cbor:",omitempty"` // the wait is over
	Ended   bool     `cbor:",omitempty"` // main has returned: the rank has nothing more to stop at
	Failed  *Moment  `cbor:",omitempty"` // the recipe has failed: a repetition comes there before the step that does
	Seen    *Seen    `cbor:",omitempty"`
}

// Seen answers a Look.
type Seen struct {
	ID     uint64
	Values []DebugValue
	Error  string // ""; there are values
}

// Why a rank stands still.
const (
	AtEntry      = "entry"
	AtBreakpoint = "breakpoint"
	AtStep       = "step"
	AtPause      = "pause"
	AtGoal       = "goto" // Go.Until or Go.Save
	AtDeadlock   = "deadlock"
)

// Stopped says that a rank stands still, and where.
type Stopped struct {
	Why     string
	Text    string  // more about it; "": nothing
	Break   int     // the breakpoint's number; 0: none
	Waits   bool    // it stands in a call that waits for other ranks
	Moment  Moment  // where it is
	Back    *Moment `cbor:",omitempty"` // of the previous statement of this function or its callers; nil: it was not seen
	Frames  []DebugFrame
	Met     []Met   `cbor:",omitempty"` // the breakpoints on the way, see Note
	Calls   int64   // of all ranks together that the rank has begun: between two, ranks that run alike come to the same statements
	Seconds float64 // that the rank has run, without the time in which it stood still
}

// MetAtMost limits what is kept of the breakpoints on a way.
const MetAtMost = 10_000

// Met is a breakpoint that a rank has met.
type Met struct {
	Moment
	Break     int
	File      string // of the statement that begins then or, of one that changes a value, does that
	Line      int32
	Text      string
	Value     uint64 // digest of a value that has changed
	Calls     int64  // see Stopped
	First     bool   // it was not seen before
	NotFinite bool   // it is, or holds, NaN or infinity
}

// DebugFrame is a function's call under way, innermost first.
type DebugFrame struct {
	Func string
	At   string // where the function begins
	File string
	Line int32
	Col  int32
}

// DebugValue is a value as a person sees it.
type DebugValue struct {
	Name   string
	Type   string
	Text   string
	Of     int    // its number, if it has parts; 0: it has none
	Digest uint64 // equal for equal values
	Shape  []int  // of a tensor
}

// Debugging is a message between a run's coordinator and its debugger. It has a Debug to a rank or, on the way back, one of the
// other fields.
type Debugging struct {
	Rank     int
	Debug    *Debug    `cbor:",omitempty"`
	World    int       `cbor:",omitempty"` // so many ranks have begun
	Debugged *Debugged `cbor:",omitempty"` // of that rank
	Ended    *string   `cbor:",omitempty"` // the rank has ended, and why, if it failed
	Over     *string   `cbor:",omitempty"` // the run has
}
