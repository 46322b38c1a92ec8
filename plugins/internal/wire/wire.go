// Package wire is what drun and its plugins agree on: the handshake, the control service (control.go), the plugin's
// requests to the key-value store, which go over the lifeline, and the layout of the arena through which calls go.
// plugins/sdk is the serving side, plugins/client the calling one.
package wire

import (
	"context"
	"net"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
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
