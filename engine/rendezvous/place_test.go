package rendezvous

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestFromEnviron(t *testing.T) {
	base := map[string]string{"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
	for _, c := range []struct {
		name  string
		set   map[string]string // "": unset
		want  Place
		addr  string
		fault string // the variable
		text  string
	}{
		{name: "one node", want: Place{Rank: 5, WorldSize: 8, LocalRank: 5, LocalSize: 8, Nodes: 1}, addr: "10.0.0.1:29500"},
		{name: "two nodes", set: map[string]string{"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"},
			want: Place{Rank: 5, WorldSize: 8, LocalRank: 1, LocalSize: 4, NodeRank: 1, Nodes: 2}, addr: "10.0.0.1:29500"},
		{name: "nodes of equal size", set: map[string]string{"LOCAL_WORLD_SIZE": "2"},
			want: Place{Rank: 5, WorldSize: 8, LocalRank: 1, LocalSize: 2, NodeRank: 2, Nodes: 4}, addr: "10.0.0.1:29500"},
		{name: "IPv6", set: map[string]string{"MASTER_ADDR": "::1"},
			want: Place{Rank: 5, WorldSize: 8, LocalRank: 5, LocalSize: 8, Nodes: 1}, addr: "[::1]:29500"},
		{name: "no rank", set: map[string]string{"RANK": ""}, fault: "RANK", text: "not set"},
		{name: "no size", set: map[string]string{"WORLD_SIZE": ""}, fault: "WORLD_SIZE", text: "not set"},
		{name: "no address", set: map[string]string{"MASTER_ADDR": ""}, fault: "MASTER_ADDR", text: "not set"},
		{name: "no port", set: map[string]string{"MASTER_PORT": ""}, fault: "MASTER_PORT", text: "not set"},
		{name: "port", set: map[string]string{"MASTER_PORT": "70000"}, fault: "MASTER_PORT", text: `"70000": want a whole number from 1 to 65535`},
		{name: "port 0", set: map[string]string{"MASTER_PORT": "0"}, fault: "MASTER_PORT", text: "from 1 to 65535"},
		{name: "a name as port", set: map[string]string{"MASTER_PORT": "http"}, fault: "MASTER_PORT", text: `"http"`},
		{name: "rank outside", set: map[string]string{"RANK": "8"}, fault: "RANK", text: `"8": want a whole number from 0 to 7 in a world of 8`},
		{name: "negative rank", set: map[string]string{"RANK": "-1"}, fault: "RANK", text: "from 0 to 7"},
		{name: "size 0", set: map[string]string{"WORLD_SIZE": "0"}, fault: "WORLD_SIZE", text: "from 1"},
		{name: "local rank outside", set: map[string]string{"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, fault: "LOCAL_RANK", text: "from 0 to 1"},
		{name: "local size", set: map[string]string{"LOCAL_WORLD_SIZE": "9"}, fault: "LOCAL_WORLD_SIZE", text: "from 1 to 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := maps.Clone(base)
			maps.Copy(env, c.set)
			place, addr, err := FromEnviron(func(name string) (string, bool) {
				v, ok := env[name]
				return v, ok
			})
			if c.fault == "" {
				want(t, "place", place, err, c.want)
				want(t, "address", addr, err, c.addr)
				return
			}
			var fault *EnvironError
			if !errors.As(err, &fault) || fault.Name != c.fault || fault.ExitCode() != 2 {
				t.Fatalf("%v, want an error of %s", err, c.fault)
			}
			wantErr(t, err, c.fault, c.text)
		})
	}
}

// What a worker is told can be read back.
func TestEnvironRoundTrip(t *testing.T) {
	given := Place{Rank: 3, WorldSize: 4, LocalRank: 1, LocalSize: 2, NodeRank: 1, Nodes: 2}
	env := map[string]string{"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
	for _, v := range given.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	got, _, err := FromEnviron(func(name string) (string, bool) { return env[name], true })
	want(t, "place", got, err, given)
}
