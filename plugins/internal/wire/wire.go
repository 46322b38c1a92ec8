// Package wire is what drun and its plugins agree on: the handshake, the control service (control.go), the plugin's
// requests to the key-value store, which go over the lifeline, and the layout of the arena through which calls go.
// plugins/sdk is the serving side, plugins/client the calling one.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"drun/collective"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// Version of the protocol, that is of the control service and the arena's layout. drun may support several.
const Version = 4

// Handshake shows a plugin that drun started it.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "DRUN_BACKEND_PLUGIN", MagicCookieValue: "f3a1c0b85d1e4a7e"}

// Name is what go-plugin calls the one service of a plugin.
const Name = "backend"

// The descriptors that a plugin inherits after its standard ones.
const (
	ArenaFD = 3 + iota
	LifelineFD
	ProgramFD // the plugin's program, by which it is executed; a script has none
)

// Lifeline is one end of the connection that ends with either process. Over it the plugin calls Store.Get and Store.Set
// through net/rpc.
type Lifeline struct {
	net.Conn
	Ended func() // called when the other process has ended; perhaps more than once
}

func (l *Lifeline) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.Ended()
	}
	return n, err
}

// Entry is the argument of Store.Set.
type Entry struct {
	Key   string
	Value []byte
}

// Plugin connects the control service to go-plugin. Only the serving side has a Service.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Service ControlServer
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&service, p.Service)
	return nil
}

func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// ControlServer serves drun's requests other than calls, which go through the arena.
type ControlServer interface {
	// Describe says what the plugin is and whether it can run here.
	Describe(context.Context, *DescribeRequest) (*Description, error)
	// Open joins the world; it returns when all ranks have.
	Open(context.Context, *OpenRequest) (*Opened, error)
	// Split makes a group.
	Split(context.Context, *SplitRequest) (*Opened, error)
	// Abort ends the calls of a group. It is answered while calls are under way.
	Abort(context.Context, *AbortRequest) (*Done, error)
	// Statistics counts what a group has done.
	Statistics(context.Context, *CommRequest) (*Counts, error)
	// Close releases what a group holds; closing the world closes all groups.
	Close(context.Context, *CommRequest) (*Done, error)
}

// DescribeRequest asks what the plugin is.
type DescribeRequest struct {
	NoProbe bool // do not check whether it can run here
}

// Description answers a DescribeRequest.
type Description struct {
	Name, Version string
	Problem       string // why it cannot run here; "" if it can
	Properties    collective.Properties
}

// OpenRequest is a [collective.World]; Store says that there is one.
type OpenRequest struct {
	Rank, Size, LocalRank, LocalSize int
	Store, Deterministic             bool
	NodeAddress                      string
}

// SplitRequest makes a group of some of a Comm's ranks.
type SplitRequest struct {
	Comm, ID uint32
	Ranks    []int
}

// Opened answers OpenRequest and SplitRequest.
type Opened struct {
	Comm       uint32 // names it in slots; 0 for the world
	None       bool   // this rank is not in the group
	Rank, Size int    // as the plugin's Comm says
	Failure    *Failure
}

// AbortRequest ends all calls of a Comm.
type AbortRequest struct {
	Comm  uint32
	Cause string
}

// CommRequest names a Comm.
type CommRequest struct{ Comm uint32 }

// Done answers requests that have no other answer.
type Done struct{ Failure *Failure }

// Counts are what the plugin has done.
type Counts struct{ Counts map[string]int64 }

// Failure is an error.
type Failure struct {
	Status uint8 // as in a slot
	Text   string
}

const serviceName = "drun.plugin.Control"

var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*ControlServer)(nil),
	Methods: []grpc.MethodDesc{
		Describe.serve(ControlServer.Describe), Open.serve(ControlServer.Open), Split.serve(ControlServer.Split),
		Abort.serve(ControlServer.Abort), Statistics.serve(ControlServer.Statistics), Close.serve(ControlServer.Close),
	},
}

// A Method is a request of the control service, as [ControlServer] describes it.
type Method[Q, R any] string

// The requests.
const (
	Describe   Method[DescribeRequest, Description] = "Describe"
	Open       Method[OpenRequest, Opened]          = "Open"
	Split      Method[SplitRequest, Opened]         = "Split"
	Abort      Method[AbortRequest, Done]           = "Abort"
	Statistics Method[CommRequest, Counts]          = "Statistics"
	Close      Method[CommRequest, Done]            = "Close"
)

func (m Method[Q, R]) Ask(ctx context.Context, plugin *grpc.ClientConn, request *Q) (*R, error) {
	reply := new(R)
	if err := plugin.Invoke(ctx, "/"+serviceName+"/"+string(m), request, reply, inCBOR); err != nil {
		return nil, err
	}
	return reply, nil
}

// serve answers the requests.
func (m Method[Q, R]) serve(answer func(ControlServer, context.Context, *Q) (*R, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: string(m),
		Handler: func(server any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := new(Q)
			if err := decode(request); err != nil {
				return nil, err
			}
			return answer(server.(ControlServer), ctx, request)
		}}
}

// inCBOR encodes a request and its answer as CBOR, like all of drun's messages.
var inCBOR = grpc.CallContentSubtype("cbor")

func init() { encoding.RegisterCodec(codec{}) }

type codec struct{}

func (codec) Name() string                       { return "cbor" }
func (codec) Marshal(v any) ([]byte, error)      { return cbor.Marshal(v) }
func (codec) Unmarshal(data []byte, v any) error { return decoder.Unmarshal(data, v) }

// Libraries' errors may hold any bytes.
var decoder, _ = cbor.DecOptions{UTF8: cbor.UTF8DecodeInvalid}.DecMode()

// How a call, or a request of the control service, ended.
const (
	OK           = iota
	BadCall      // collective.CallError
	Disagreement // collective.ErrFingerprint
	TimedOut     // collective.ErrTimeout
	Closed       // collective.ErrClosed
	Broken       // any other error of the engine
	Panicked
)

var sentinels = map[uint8]error{Disagreement: collective.ErrFingerprint, TimedOut: collective.ErrTimeout, Closed: collective.ErrClosed}

// Encode returns the status and the text of an error.
func Encode(err error) (status uint8, text string) {
	var bad *collective.CallError
	switch {
	case err == nil:
		return OK, ""
	case errors.As(err, &bad):
		return BadCall, bad.Problem
	}
	for _, status := range []uint8{Disagreement, TimedOut, Closed} {
		if errors.Is(err, sentinels[status]) {
			return status, ""
		}
	}
	if failed, ok := err.(*collective.BackendError); ok {
		return Broken, failed.Msg // Decode names the backend and the rank
	}
	return Broken, err.Error()
}

// Decode restores the error; the engine's own errors become a BackendError.
func Decode(status uint8, text string, kind collective.Kind, backend string, rank int) error {
	switch status {
	case OK:
		return nil
	case BadCall:
		return &collective.CallError{Kind: kind, Problem: text}
	case Disagreement, TimedOut, Closed:
		return sentinels[status]
	case Broken:
	case Panicked:
		text = "it panicked: " + text
	default:
		text = fmt.Sprintf("the plugin answered with status %d, which does not exist", status)
	}
	return &collective.BackendError{Backend: backend, Rank: rank, Msg: text}
}
