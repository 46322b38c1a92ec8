package cluster

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/engine/transfer"
	"drun/history/records"
	"drun/internal/exit"
)

// Hello is how a node introduces itself.
type Hello struct {
	Version string // of drun
	ID      string // of the run, if it has one
	Spare   bool   // its number is beyond those of the run's nodes: it waits until one of them is lost
	Index   int    // of this process: its node's rank, or its only rank's
	Count   int    // of processes
	// Placement is the rank's place if the process is a rank that was started by itself. Otherwise it is nil, and Procs
	// is how many ranks the node has.
	Placement *rendezvous.Placement
	Procs     int
	Host      string
	PID       int
	// Machine is the same for processes that can share memory.
	Machine string
	// Program is the version of drun-plugin-host, empty if it is not installed or not needed.
	Program string
	// Settings must be the same for all processes.
	Settings []Setting
}

// Setting is a value, under the name by which the user knows it.
type Setting struct {
	Name, Value string
	Secret      bool `cbor:",omitempty"` // Value is a hash, from which a guess could be confirmed: it is not shown
}

// Noun is what the process is called: "node 1", or "rank 1".
func (h *Hello) Noun() string {
	if h.Index == Unnumbered {
		return "a " + h.kind()
	}
	return fmt.Sprintf("%s %d", h.kind(), h.Index)
}

func (h *Hello) kind() string {
	if h.Placement != nil {
		return "rank"
	}
	return "node"
}

// Who identifies the process to a person.
func (h *Hello) Who() string { return fmt.Sprintf("%s (process %d on %s)", h.Noun(), h.PID, h.Host) }

// Machine identifies this machine or container, for this user: its processes share a clock and can share memory.
func Machine() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, no two machines are the same
	pids, _ := os.Readlink("/proc/self/ns/pid")
	if len(boot) == 0 || pids == "" {
		return fmt.Sprintf("process %d", os.Getpid())
	}
	clock, _ := os.Readlink("/proc/self/ns/time") // "" on kernels without time namespaces
	return fmt.Sprintf("%s %s %s %d", strings.TrimSpace(string(boot)), pids, clock, os.Getuid())
}

// Differ returns an error about the first setting in which two processes differ.
func Differ(a, b *Hello) error {
	values := func(h *Hello) map[string]string {
		values := map[string]string{}
		for _, s := range h.Settings {
			values[s.Name] = s.Value
		}
		return values
	}
	ours, theirs := values(a), values(b)
	for _, s := range slices.Concat(a.Settings, b.Settings) {
		own, other := cmp.Or(ours[s.Name], "nothing"), cmp.Or(theirs[s.Name], "nothing")
		if own != other && s.Secret {
			return exit.WithHint(exit.Errorf(exit.Usage, "%s differs between %s and %s", s.Name, a.Who(), b.Who()), "every process of a run is started with the same values; secret ones are not shown")
		}
		if own != other {
			return exit.WithHint(exit.Errorf(exit.Usage, "%s differs: %s has %s, %s has %s", s.Name, a.Who(), own, b.Who(), other),
				"every process of a run is started with the same recipe and the same flags")
		}
	}
	if a.Program != b.Program && a.Program != "" && b.Program != "" {
		return exit.WithHint(exit.Errorf(exit.Usage, "the version of drun-plugin-host differs: %s has %q, %s has %q", a.Who(), a.Program, b.Who(), b.Program),
			"copy drun and drun-plugin-host of one build to all machines")
	}
	return nil
}

// ToNode is a message from the coordinator; one field is set, Rank and Msg together.
type ToNode struct {
	Refused *engine.Failure  `cbor:",omitempty"` // why this process cannot take part
	Start   *Start           `cbor:",omitempty"`
	Rank    int              `cbor:",omitempty"`
	Msg     *engine.ToWorker `cbor:",omitempty"` // for rank Rank
	Abort   *Abort           `cbor:",omitempty"`
	Kill    bool             `cbor:",omitempty"` // all remaining ranks
	Show    *Show            `cbor:",omitempty"` // a mirror is wanted
	Mirror  *Mirror          `cbor:",omitempty"`
	End     *End             `cbor:",omitempty"`
	Want    *transfer.Want   `cbor:",omitempty"` // of what the node's ranks have handed over
	Got     *transfer.Got    `cbor:",omitempty"`
	Forget  uint64           `cbor:",omitempty"` // the state of that number, which ranks have handed over
}

// size is how many messages it counts as in a queue.
func (m *ToNode) size() int {
	size := sizeOf(m.Got)
	if m.Msg != nil && m.Msg.Store != nil {
		for _, value := range m.Msg.Store.Values {
			size += len(value) >> 14
		}
	}
	return size
}

func (m *ToCoordinator) size() int { return sizeOf(m.Got) }

func sizeOf(g *transfer.Got) int {
	if g == nil {
		return 1
	}
	return 1 + len(g.Data)>>14
}

// Start begins the run, or another attempt of it once all ranks of the previous one have ended.
type Start struct {
	Attempt int
	Index   int    // of the node
	Address string // of the coordinator's machine, for its own node: see node.Config
	World   int
	Backend string
	Jobs    []engine.Job // of this node's ranks
	Now     int64        // the coordinator's clock
	// Shared has the paths of the run's memory files, for nodes on one machine, which can open them. Empty: the
	// node makes its own board.
	Shared []string
}

// Abort passes on why a board's waits have ended.
type Abort struct {
	By    int
	Cause []byte
}

// End is how the run ended.
type End struct {
	ID      int64
	Name    string
	Code    exit.Code
	Failure *engine.Failure `cbor:",omitempty"`
	Seconds float64
}

// ToCoordinator is a message from a node; Rank and one other field are set.
type ToCoordinator struct {
	Attempt int             `cbor:",omitempty"` // the attempt that it is about
	Hello   *Hello          `cbor:",omitempty"`
	Rank    int             `cbor:",omitempty"`
	Msg     *engine.ToAgent `cbor:",omitempty"` // of that rank
	Line    *Line           `cbor:",omitempty"` // of that rank
	Exit    *Exit           `cbor:",omitempty"` // of that rank
	Abort   *Abort          `cbor:",omitempty"`
	Signal  int             `cbor:",omitempty"` // that the node received
	Look    *Look           `cbor:",omitempty"`
	Mirror  *Mirror         `cbor:",omitempty"`
	Usage   *records.Usage  `cbor:",omitempty"` // of that rank
	Want    *transfer.Want  `cbor:",omitempty"` // of a state that ranks restore
	Got     *transfer.Got   `cbor:",omitempty"`
}

// Look says that ranks wait: it asks for a round in which all nodes show their boards.
type Look struct {
	Ask uint32 `cbor:",omitempty"` // of a rank that makes a report: see board.Board.Asks
}

// Show asks a node for its ranks' part of the board, in that round. All: with the journals of all their groups.
type Show struct {
	Round uint64
	All   bool `cbor:",omitempty"`
}

// Mirror is what is on another board.
type Mirror struct {
	Words  *board.Mirror
	Round  uint64       `cbor:",omitempty"` // in which the coordinator asked; 0: it did not ask
	Told   uint32       `cbor:",omitempty"` // the latest request of this node that this answers
	Circle []board.Wait `cbor:",omitempty"` // that the coordinator has confirmed
}

// Line is a line that a rank printed.
type Line struct {
	Stderr bool
	Text   string
}

// Exit is how a rank's process ended.
type Exit struct {
	Text   string
	Clean  bool
	Killed bool
	Signal int  // that killed it
	Ours   bool `cbor:",omitempty"` // drun itself ended it
}
