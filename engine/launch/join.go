package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/engine"
	"drun/engine/nodes"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/internal/secret"
)

// Joining makes this process one of several that run a recipe together: the
// agents of several nodes, or one agent a rank, as torchrun's variables start
// them. The first of them is the head, which keeps the run; it listens, and the
// others find it.
type Joining struct {
	Address string // host:port of the first
	Secret  string // that all must know; "" will do only where nobody else reaches the port
	Index   int    // of this process
	Count   int    // of processes
	// Place is that of the only rank, where it was started by itself; nil: a
	// node of Options.Nproc ranks.
	Place *rendezvous.Place
}

// several reports whether the user has said that there are several nodes.
func (j *Joining) several() bool {
	return j.Place == nil || j.Place.Nodes > 1 || j.Place.LocalSize != rendezvous.Unknown && j.Place.LocalSize < j.Count
}

// Name is what the process is called: "node 1", or "rank 1".
func (j *Joining) Name() string { return (&nodes.Hello{Index: j.Index, Place: j.Place}).Noun() }

// ranksHere is how many ranks share this machine, as far as is known.
func (o *Options) ranksHere() int {
	switch {
	case o.Join == nil || o.Join.Place == nil:
		return o.Nproc
	case o.Join.Place.LocalSize == rendezvous.Unknown:
		return o.Join.Count
	}
	return o.Join.Place.LocalSize
}

// hello is what this process says of itself.
func hello(o Options, bundle *recipe.Bundle) *nodes.Hello {
	h := &nodes.Hello{Version: o.Version, Index: o.Join.Index, Count: o.Join.Count, Place: o.Join.Place, Procs: o.Nproc,
		PID: os.Getpid(), Machine: nodes.Machine()}
	h.Host, _ = os.Hostname() // only shown
	add := func(name, value string) { h.Settings = append(h.Settings, nodes.Setting{Name: name, Value: value}) }
	add("the version of drun", strconv.Quote(o.Version))
	if o.Join.Place != nil {
		add("WORLD_SIZE", strconv.Itoa(o.Join.Count))
	} else {
		add("--nnodes", strconv.Itoa(o.Join.Count))
	}
	add("the recipe", bundle.Main)
	for _, s := range bundle.Sources {
		sum := sha256.Sum256(s.Content)
		add("the file "+s.Path, "one with SHA-256 "+hex.EncodeToString(sum[:6])+"…")
	}
	backend := o.Backend
	if backend == "" {
		backend = "none"
	}
	add("--backend", backend)
	add("--seed", strconv.FormatInt(o.Seed, 10))
	params := slices.Clone(o.Params)
	for i, text := range params {
		if name, value, _ := strings.Cut(text, "="); secret.Named(name) { // told apart, not told
			sum := sha256.Sum256([]byte(value))
			params[i] = name + "=" + secret.Redacted + hex.EncodeToString(sum[:4])
		}
	}
	slices.Sort(params)
	add("-p", fmt.Sprintf("%q", params))
	add("--resume", strconv.Quote(o.Resume))
	add("--deterministic", strconv.FormatBool(o.Deterministic))
	return h
}

// listenAddress is where the head listens. A machine's own name often leads to
// an address that others cannot reach, so that only numbers are taken as they are.
func listenAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || net.ParseIP(host) != nil && ownAddress(host) {
		return address
	}
	return net.JoinHostPort("", port)
}

// ownAddress reports whether the address is one of this machine's interfaces;
// that of a service in front of it is not.
func ownAddress(host string) bool {
	ip := net.ParseIP(host)
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// never is a timer that is stopped, or one that fires in d.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// listed names ranks or nodes: "ranks 1, 2 and 3".
func listed(noun string, numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	switch n := len(words); {
	case n == 1:
		return noun + " " + words[0]
	case n > 8:
		return fmt.Sprintf("%ss %s and %d more", noun, strings.Join(words[:8], ", "), n-8)
	default:
		return noun + "s " + strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

func ipOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// refusal makes an error one that the other side can print and end with.
func refusal(err error) *engine.Failure {
	return engine.NewFailure(-1, err, 0)
}
