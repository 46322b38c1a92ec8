package launch

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Host is a machine on which a node of the run starts.
type Host struct {
	Name  string // as ssh takes it: a name, an address or an alias, perhaps as user@name
	Procs int    // ranks there; 0: as many as on the other hosts
}

// ParseHosts parses host names that are separated by commas. HOST:N starts N ranks there; an IPv6 address with a number
// of ranks stands in brackets.
func ParseHosts(text string) (hosts []Host, err error) {
	for name := range strings.SplitSeq(text, ",") {
		h := Host{Name: name}
		if host, procs, err := net.SplitHostPort(name); err == nil {
			if h.Procs, err = strconv.Atoi(procs); err != nil || h.Procs < 1 {
				return nil, fmt.Errorf("%s: want HOST or HOST:RANKS, with a number of ranks from 1", name)
			}
			h.Name = host
		}
		// ssh would take -x for an option.
		if h.Name == "" || h.Name[0] == '-' || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r > '~' || r == '[' || r == ']' }) {
			return nil, fmt.Errorf("%q is no name of a host", h.Name)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}
