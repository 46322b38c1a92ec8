//go:build gloo

package gloo

import (
	"fmt"
	"net"
	"strings"

	"drun/collective"
	"drun/plugins/internal/bootstrap"
)

// place chooses the network interface, by name or by one of its addresses.
func (o Options) place(world collective.World) (name, address string, err error) {
	switch {
	case net.ParseIP(o.Interface) != nil:
		return "", o.Interface, nil
	case o.Interface != "":
		if _, err := net.InterfaceByName(o.Interface); err != nil {
			return "", "", fmt.Errorf("there is no network interface %s; this machine has %s", o.Interface, interfaces())
		}
		return o.Interface, "", nil
	case world.NodeAddress != "": // the one through which the agents have met
		return "", world.NodeAddress, nil
	case world.LocalSize == world.Size:
		return "", "127.0.0.1", nil
	}
	if address, err = bootstrap.Route(); err != nil {
		return "", "", fmt.Errorf("%w; name one in DRUN_GLOO_INTERFACE: this machine has %s", err, interfaces())
	}
	return "", address, nil
}

// hostOf returns the address to listen on: the chosen one, or the interface's first.
func hostOf(name, address string) (string, error) {
	if name == "" {
		return address, nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("the network interface %s: %w", name, err)
	}
	all, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("the network interface %s: %w", name, err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				return n.IP.String() + "%" + name, nil
			}
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("the network interface %s has no address", name)
}

func interfaces() string {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		return "none"
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
