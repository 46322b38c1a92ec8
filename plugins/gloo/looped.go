//go:build gloo

package gloo

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// looped gives the ports of this process's sockets that are connected with
// themselves. Where nobody listens any more, the port that is called may be the
// very one that the kernel gives to the caller. Gloo does not show its sockets.
func looped() (ports []int) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, f := range list {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		peer, err := unix.Getpeername(fd)
		if err != nil {
			continue
		}
		switch a := own.(type) {
		case *unix.SockaddrInet4:
			if b, ok := peer.(*unix.SockaddrInet4); ok && a.Port == b.Port && a.Addr == b.Addr {
				ports = append(ports, a.Port)
			}
		case *unix.SockaddrInet6:
			if b, ok := peer.(*unix.SockaddrInet6); ok && a.Port == b.Port && a.Addr == b.Addr {
				ports = append(ports, a.Port)
			}
		}
	}
	return ports
}
