package wire

import (
	"context"
	"errors"
	"fmt"

	"drun/collective"

	"github.com/fxamacker/cbor/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

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
	NoProbe bool // whether it can run here is not of interest
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

// Ask makes a request of a plugin.
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
