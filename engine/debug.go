package engine

// Debug is what a debugger asks of a rank, which carries it out at its next step, or at once while it stands still. The rank
// answers with a Debugged of the same number.
type Debug struct {
	ID     uint64
	Breaks *[]Breakpoint `cbor:",omitempty"` // replaces all breakpoints
	Pause  bool          `cbor:",omitempty"` // the rank stops at its next step
	Go     *Go           `cbor:",omitempty"` // the rank goes on
	Look   *Look         `cbor:",omitempty"`
	Find   *Find         `cbor:",omitempty"` // begins with the next Go
	Held   *bool         `cbor:",omitempty"` // whether some rank stands still: time limits stop meanwhile
	Leave  bool          `cbor:",omitempty"` // the debugger goes away: all breakpoints are removed, and the rank goes on
}

// Breakpoint says where ranks stop: at a line, before a collective, after an update, or where a value is not finite.
type Breakpoint struct {
	ID         int
	File       string // as positions show it
	Line       int32  // of a statement; 0: another kind
	Condition  string // evaluated at the line; "": none
	Collective string // its name, or "*" for all
	Updates    int64  // of the parameters, after which ranks stop; 0: another kind
	NotFinite  bool   // at the operation whose result is not finite, although what it was given is
	Ranks      []int  // nil: all
}

// Moment is a point in a rank's execution of the recipe, which a repetition of the run reaches again.
type Moment struct {
	Updates int64  // of the parameters that the rank has made, see starlib.Rank
	Steps   uint64 // of the interpreter, since the latest of them or since the rank's start
	Digest  uint64 // of the parameters after that update; 0: there is none
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

// Go says how far a rank goes on.
type Go struct {
	To       string
	Until    *Moment `cbor:",omitempty"` // it stops there in any case
	Straight bool    `cbor:",omitempty"` // breakpoints before that do not stop it
}

// Look asks for values while the rank stands still.
type Look struct {
	Frame int    // of Stopped.Frames
	Scope string // Locals or Globals; "": see below
	Of    int    // a value's number: its parts
	Expr  string // evaluated in the frame
	From  int    // with Expr, of a tensor: so many elements from this one on
	Count int
}

// The scopes of a frame.
const (
	Locals  = "locals"
	Globals = "globals"
)

// Find has a rank note, until it stops where Go.Until says, each moment at which something happens: a breakpoint is met or,
// with Expr, the value of an expression changes in a function.
type Find struct {
	Expr      string
	Func      string // where Expr has a meaning, and that function's position
	At        string
	Last      bool // keep the latest moments if there are many, not the first
	NotFinite bool // an operation gives a value that is not finite
}

// Debugged is what a rank tells the debugger.
type Debugged struct {
	ID      uint64        // of what it answers; 0: it tells by itself
	Error   string        `cbor:",omitempty"`
	Stopped *Stopped      `cbor:",omitempty"`
	Waits   bool          `cbor:",omitempty"` // for other ranks, for a while now
	Goes    bool          `cbor:",omitempty"` // the wait is over
	Values  []DebugValue  `cbor:",omitempty"`
	Numbers []float64     `cbor:",omitempty"` // the elements that Look asked for
	Blocks  []uint64      `cbor:",omitempty"` // digests of a tensor's elements in order, in equal parts
	Found   []FoundMoment `cbor:",omitempty"` // what Find has noted
}

// Why a rank stands still.
const (
	AtEntry      = "entry"
	AtBreakpoint = "breakpoint"
	AtStep       = "step"
	AtPause      = "pause"
	AtGoal       = "goal" // Go.Until
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
	Seconds float64 // that the rank has run, without the time in which it stood still
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
	Of     int          // its number, if it has parts; 0: it has none
	Parts  int          // how many
	Digest uint64       // equal for equal values
	Tensor *DebugTensor `cbor:",omitempty"`
}

// DebugTensor sums up a tensor.
type DebugTensor struct {
	DType    string
	Shape    []int
	Values   []float64 // the first ones
	Min, Max float64   // of its numbers; NaN if it has none
	NaN, Inf int       // how many elements are so
}

// FoundMoment is a moment that Find has noted.
type FoundMoment struct {
	Moment
	File      string // of the statement that begins then, and does it
	Line      int32
	Value     uint64 // digest of the value after it
	Text      string
	NotFinite bool // it is, or holds, NaN or infinity
}

// Debugging is a message between a run's coordinator and a debugger that has come to the run. It has a Debug to a rank or, on
// the way back, one of the other fields.
type Debugging struct {
	Rank     int
	Debug    *Debug    `cbor:",omitempty"`
	World    int       `cbor:",omitempty"` // so many ranks have begun
	Debugged *Debugged `cbor:",omitempty"` // of that rank
	Ended    *string   `cbor:",omitempty"` // the rank has ended, and why, if it failed
	Over     *string   `cbor:",omitempty"` // the run has
}
