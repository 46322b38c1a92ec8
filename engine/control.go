package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/history/records"
	"drun/internal/exit"

	"github.com/fxamacker/cbor/v2"
)

// WorkerArg is the first argument of a worker's command line.
const WorkerArg = "worker"

// WorkerIgnores are signals that are often sent to all processes of a run at once: the agent decides what they
// mean, and a worker ends when the control channel does.
var WorkerIgnores = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// The descriptors a worker inherits after its standard ones.
const (
	ControlFD = 3 + iota
	BoardFD
	ShmFD
)

// Job is everything a worker needs to run its rank. It is one message: a worker that has it waits for no other.
type Job struct {
	RunID         int64
	RunName       string
	RestartCount  int
	Placement     rendezvous.Placement
	Peers         []int // the ranks of its node, in the order of their local ranks
	Seed          uint64
	Backend       string
	Plugin        *Plugin          `cbor:",omitempty"` // of the backend; nil: built in
	Hierarchy     *Hierarchy       `cbor:",omitempty"` // nil: the backend alone carries the collectives
	Recipe        string           // as the user named it: the prefix of every position
	Dir           string           // the recipe's folder, absolute
	Main          string           // the recipe's path beneath Dir
	Project       string           // Dir beneath the project's root, as in recipe.Project
	Sources       []records.Source // the recipe and every file it loads
	DataDirs      []string
	Home          string  // of the run, on the coordinator's machine; absolute
	Params        []Param // -p name=value, as given
	Timeout       time.Duration
	Threads       int
	Memory        int     // bytes that the ranks of a machine have together; 0: all of the machine's
	Testing       bool    // the builtins of module testing can be called
	Function      string  // called instead of main; "": main
	Describe      bool    // run the top level only, and report the parameters
	Watched       bool    // somebody watches the progress bar
	Deterministic bool    // reductions in rank order
	Groups        *bool   `cbor:",omitempty"` // the same for groups with backends of their own; nil: as each prefers
	Near          [2]int  // the ranks on this node's board, [from, to); both 0: all
	Counted       bool    // the plugin's statistics are wanted
	Target        *Target `cbor:",omitempty"` // where the run ends; nil: when main returns
	Trace         string  // folder in which each rank writes digests of all values that the recipe computes; "": none
	Audit         float64 // the share of operations that are computed twice; 0: the run is not audited
	Avoid         []int   `cbor:",omitempty"` // cores of the rank's machine that computed wrongly
	Device        string  // that computes tensors: cpu or "", opencl, opencl:N or auto
	OtherBits     bool    // the device may compute other bits than the processor
	NodeAddress   string  // of this machine, as the other nodes reach it; "": there is one node
	Debug         bool    // the rank waits for a debugger before it executes the recipe
	Marks         bool    // every statement has a position, for the debugger; a run that began without one has none
	KeepEach      int64   // the rank saves its state after each so many updates, for a debugger that goes back to one; 0: never
}

// Target is the point at which a replay hands over the state of every rank and ends.
type Target struct {
	Updates int64  // the number of updates that the rank has made
	Quit    bool   // it only ends, before it counts another update
	Save    *int64 // at the call of checkpoint.save for this step; nil: as soon as the recipe decides whether to save
}

// TraceFile is the name of a rank's file in the folder Job.Trace. Each value that the recipe computes is a record
// in it: the number of its place (uvarint); for a new number, the next one, also the place's text (length as
// uvarint, then the operation, a zero byte and the position); and the digest of the value (8 bytes).
func TraceFile(rank int) string { return fmt.Sprintf("%d.trace", rank) }

// TargetStep is the step under which a replay saves that state.
const TargetStep = -1 << 62

// Plugin is the program of a backend, as the agent found it.
type Plugin struct {
	records.Plugin
	Mark string // changes if the program has changed since the checksum was taken
	// WholeWorld and OwnOrder are the backend's collective.Properties, of a group's own backend.
	WholeWorld bool `cbor:",omitempty"`
	OwnOrder   bool `cbor:",omitempty"`
}

// Found answers Find: the plugin, or why there is none.
type Found struct {
	Plugin  *Plugin  `cbor:",omitempty"`
	Failure *Failure `cbor:",omitempty"`
}

// Uses says that a group's own plugin has started.
type Uses struct {
	records.Plugin
	Orders bool // it reduces in an order of its own
}

// Replica is the state of an optimizer whose parameters should be equal on all ranks.
type Replica struct {
	File      string // where the recipe made it
	Line, Col int32
	ID        uint64 // which of those made there
	Steps     int64  // that it has made; 0: before the first
	Update    int64  // of the rank, if Sum depends on it
	Sum       uint64 // of all parameters before the first step, later of some
	Divides   []int  // the ranks among which a loader divides the samples; nil: none does
}

// Hierarchy routes collectives through shared memory within the nodes, and through the backend between them.
type Hierarchy struct {
	Nodes []int // of each rank
	Links int   // ranks of a node that are connected to other nodes, at most; 0: the default
}

// Param is a value given for run.params.
type Param struct {
	Name, Value string
	Kind        string // "": the text of -p; otherwise the value's type in File or in the resumed run: NoneType, bool, int, float, string or list
	File        string // the parameter file that the value is from
}

// ToWorker is a message from the agent; one field is set.
type ToWorker struct {
	Job      *Job              `cbor:",omitempty"`
	Cancel   *Failure          `cbor:",omitempty"` // another rank failed, or the user interrupted
	HandOver *HandOver         `cbor:",omitempty"`
	Saved    *Saved            `cbor:",omitempty"`
	State    *Restored         `cbor:",omitempty"`
	Parted   bool              `cbor:",omitempty"` // all ranks have returned from main, or have left the group
	Found    *Found            `cbor:",omitempty"`
	Store    *rendezvous.Reply `cbor:",omitempty"`
	Debug    *Debug            `cbor:",omitempty"`
}

// ToAgent is a message from a worker; the fields that are set are handled in order.
type ToAgent struct {
	Declared *Declared           `cbor:",omitempty"`
	Records  records.Batch       `cbor:",omitempty"`
	Progress *records.Progress   `cbor:",omitempty"` // Total is -1 when unknown
	Save     *Part               `cbor:",omitempty"`
	Handed   *Handed             `cbor:",omitempty"`
	Restore  string              `cbor:",omitempty"` // asks for the rank's part of a checkpoint: a step's number, "last" or "best"
	Taken    bool                `cbor:",omitempty"` // the file that Restored named has been opened
	Version  *string             `cbor:",omitempty"` // of the backend's plugin, which has started
	Find     string              `cbor:",omitempty"` // the plugin of a group's own backend; the node answers
	Uses     *Uses               `cbor:",omitempty"`
	Replicas []Replica           `cbor:",omitempty"`
	PerRank  []string            `cbor:",omitempty"` // of the data files, those that may differ between ranks
	Counts   map[string]int64    `cbor:",omitempty"` // what the plugin has done
	Failure  *Failure            `cbor:",omitempty"`
	Leave    *Leave              `cbor:",omitempty"`
	Done     bool                `cbor:",omitempty"` // main returned and everything was sent
	Store    *rendezvous.Request `cbor:",omitempty"` // to the run's key-value store
	Debugged *Debugged           `cbor:",omitempty"`
}

// Leave says that main has returned, or that the rank has left a group that its ranks destroy. The rank goes on
// once the others have said so too and their messages have been compared.
type Leave struct {
	Group    uint32
	Ranks    []int // of the group; nil: main has returned
	Messages []board.Messages
}

// Declared says that the top level ran, and which parameters it declared.
type Declared struct {
	Params []Value
}

// Value is a declared parameter of the recipe, and its value.
type Value struct {
	Name    string   `json:"name"`
	Kind    string   `json:"type"`              // of its value: NoneType, bool, int, float, string or list
	Default string   `json:"default"`           // as Starlark writes it
	Text    string   `json:"-" cbor:"text"`     // its value
	Changed bool     `json:"-" cbor:"changed"`  // it differs from the default
	Choices []string `json:"choices,omitempty"` // as for -p
	Help    string   `json:"help,omitempty"`
}

// Part is one rank's part of a checkpoint.
type Part struct {
	Step    int64
	Score   *float64
	Memory  bool // it is kept in memory only
	Apart   bool // the data of the entries is sent separately, when HandOver asks for it
	Entries []Entry
}

// Entry is a named tensor or, with an empty DType, an encoded plain value.
type Entry struct {
	Name  string
	DType string
	Shape []int
	Data  []byte
	// If the data is sent separately:
	Bytes  int64  `cbor:",omitempty"`
	Sum    []byte `cbor:",omitempty"` // equal for equal data; empty: unknown
	Offset int64  `cbor:",omitempty"` // in the memory file
	// For a tensor of which the rank saves a part; Shape is that of the whole.
	Share *Share `cbor:",omitempty"`
}

// Share is the part of a tensor that a rank saves: the bytes from From on, of Whole. The ranks in Set together have
// the whole.
type Share struct {
	Set         string
	From, Whole int64
}

// StateMemory is the name of the memory files through which states go to and from ranks.
const StateMemory = "drun-state"

// HandOver answers a Part whose data is sent separately. Of the ranks that have the same data, only one hands it
// over.
type HandOver struct {
	File    string // a memory file of its node that the rank can open; "": there is no data
	State   uint64 `cbor:",omitempty"` // under which the rank's node keeps the data for the coordinator; 0: the file is the coordinator's
	Region  uint64 `cbor:",omitempty"` // the file's number
	Size    int64  `cbor:",omitempty"` // of the file
	Written bool   `cbor:",omitempty"` // all of the file has been written to before
	Spans   []Span
}

// Span is where the data of an entry, by its number in the Part, goes in the file.
type Span struct {
	Entry         int
	Offset, Bytes int64
}

// Handed answers HandOver: the data is in the file, and the rank goes on.
type Handed struct{ Error string }

// Saved answers a Part that contains its data: the rank goes on. The error may be that of the previous save.
type Saved struct{ Error string }

// Restored answers ToAgent.Restore; Found is false if there is no such checkpoint. If the world size differs, the entries
// are rank 0's, and Differ lists those for which the ranks had different values.
type Restored struct {
	Found     bool
	Step      int64
	Run       string // that saved the checkpoint, for messages
	Score     *float64
	WorldSize int
	Entries   []Entry
	File      string `cbor:",omitempty"` // a memory file with the entries' data, kept until the rank says Taken; "": the entries contain it
	State     uint64 `cbor:",omitempty"` // under which the coordinator has the data; the rank's node makes File from it
	Size      int64  `cbor:",omitempty"` // of the file
	Differ    []string
	Cut       []Entry `cbor:",omitempty"` // tensors of Differ taken as rows of larger ones: this rank's share of them
	First     bool    // no other rank has been told of this checkpoint yet
	Error     string
	Code      exit.Code // of the error
	Hint      string    // likewise
}

// Channel carries messages between the agent and one worker, in order, over a
// connected socket. Send may be called from several goroutines.
type Channel struct {
	conn net.Conn
	mu   sync.Mutex
	out  *bufio.Writer
	enc  *cbor.Encoder
	dec  *cbor.Decoder
}

// Encoding and Decoding are how messages travel, both workers' and nodes'. Times keep their nanoseconds, and NaN
// its bits. Decoding has none of the library's default limits on element counts, which a large checkpoint exceeds,
// and accepts text as it is: a recipe's strings hold any bytes. The peer is drun itself.
var (
	Encoding = must(cbor.EncOptions{Time: cbor.TimeRFC3339NanoUTC, NaNConvert: cbor.NaNConvertNone, InfConvert: cbor.InfConvertNone}.EncMode())
	Decoding = must(cbor.DecOptions{MaxArrayElements: 1<<31 - 1, UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}

// NewChannel makes a channel over an inherited socket.
func NewChannel(f *os.File) (*Channel, error) {
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("control channel: %w", err)
	}
	return ChannelOver(conn), nil
}

// ChannelOver makes a channel over a connection.
func ChannelOver(conn net.Conn) *Channel {
	c := &Channel{conn: conn, out: bufio.NewWriterSize(conn, 1<<16)}
	c.enc, c.dec = Encoding.NewEncoder(c.out), Decoding.NewDecoder(bufio.NewReader(conn))
	return c
}

// Send writes a message at once.
func (c *Channel) Send(msg any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.enc.Encode(msg); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	return nil
}

// Receive reads the next message; io.EOF when the peer is gone.
func (c *Channel) Receive(msg any) error {
	err := c.dec.Decode(msg)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) { // a peer that is killed resets the connection
		return io.EOF
	}
	return err
}

// Close ends the channel; the peer reads io.EOF.
func (c *Channel) Close() error { return c.conn.Close() }
