// Package wire is what drun and its plugins agree on: the handshake, the control
// service (control.go) and the layout of the arena through which calls go.
// plugins/sdk is the serving side, plugins/client the calling one.
package wire

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Version of the protocol, that is of the control service and the arena's layout. drun may support several.
const Version = 3

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

// Plugin connects the control service to go-plugin. Only the serving side has
// a Service.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Service ControlServer
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCServer registers the service.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&service, p.Service)
	return nil
}

// GRPCClient returns the connection.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
