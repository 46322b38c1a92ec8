package sdk

import (
	"maps"
	"sync/atomic"
	"time"

	"drun/collective"
)

// counters is what every plugin counts for a group, by the kind of call.
type counters [collective.NewGroup + 1]struct{ calls, bytes, waited atomic.Int64 }

// add counts a call that has ended.
func (c *counters) add(call *collective.Call, took time.Duration) {
	if int(call.Kind) >= len(c) {
		return
	}
	k := &c[call.Kind]
	k.calls.Add(1)
	k.bytes.Add(int64(max(len(call.Send.Data), len(call.Recv.Data))))
	k.waited.Add(int64(took))
}

// statistics are those of every plugin, and the engine's own.
func (c *comm) statistics() map[string]int64 {
	all := map[string]int64{}
	for kind := range c.done {
		k, name := &c.done[kind], collective.Kind(kind).String()
		if n := k.calls.Load(); n > 0 {
			all[name+" calls"], all[name+" bytes"], all[name+" us"] = n, k.bytes.Load(), k.waited.Load()/1000
		}
	}
	if counter, ok := c.Comm.(Counter); ok {
		maps.Copy(all, counter.Statistics())
	}
	return all
}
