package rendezvous

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"drun/internal/exit"
)

func TestFromEnviron(t *testing.T) {
	base := map[string]string{"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
	for _, c := range []struct {
		name  string
		set   map[string]string // "": unset
		want  Placement
		addr  string
		fault string // the variable
		text  string
	}{
		{name: "one node", want: Placement{5, 8, Unknown, Unknown, Unknown, Unknown}, addr: "10.0.0.1:29500"},
		{name: "two nodes", set: map[string]string{"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"},
			want: Placement{5, 8, 1, 4, 1, Unknown}, addr: "10.0.0.1:29500"},
		{name: "nodes of equal size", set: map[string]string{"LOCAL_WORLD_SIZE": "2"},
			want: Placement{5, 8, Unknown, 2, Unknown, Unknown}, addr: "10.0.0.1:29500"},
		{name: "IPv6", set: map[string]string{"MASTER_ADDR": "::1"},
			want: Placement{5, 8, Unknown, Unknown, Unknown, Unknown}, addr: "[::1]:29500"},
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
		{name: "node outside", set: map[string]string{"GROUP_RANK": "2", "GROUP_WORLD_SIZE": "2"}, fault: "GROUP_RANK", text: `"2": want a whole number from 0 to 1 where GROUP_WORLD_SIZE is 2`},
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
			if !errors.As(err, &fault) || fault.Name != c.fault || fault.ExitCode() != exit.Usage {
				t.Fatalf("%v, want an error of %s", err, c.fault)
			}
			wantErr(t, err, c.fault, c.text)
		})
	}
}

// What a worker is told can be read back.
func TestEnvironRoundTrip(t *testing.T) {
	given := Placement{Rank: 3, WorldSize: 4, LocalRank: 1, LocalSize: 2, NodeRank: 1, Nodes: 2}
	env := map[string]string{"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
	for _, v := range given.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	got, _, err := FromEnviron(func(name string) (string, bool) { return env[name], true })
	want(t, "place", got, err, given)
}

// Placements follow from what the ranks were told, whatever their order is.
func TestAssignPlaces(t *testing.T) {
	const u = Unknown
	type told struct{ local, size, node, nodes int }
	nothing := told{u, u, u, u}
	for _, c := range []struct {
		name     string
		told     []told
		machines string // a letter a rank
		want     string // node.local of each rank
		fault    string
	}{
		{name: "nothing, one machine", told: []told{nothing, nothing, nothing}, machines: "aaa", want: "0.0 0.1 0.2"},
		{name: "nothing, unequal machines", told: []told{nothing, nothing, nothing}, machines: "aab", want: "0.0 0.1 1.0"},
		{name: "nothing, machines in turn", told: []told{nothing, nothing, nothing, nothing, nothing}, machines: "babab", want: "0.0 1.0 0.1 1.1 0.2"},
		{name: "as torchrun says it", told: []told{{0, 2, 0, 2}, {1, 2, 0, 2}, {0, 1, 1, 2}}, machines: "aaa", want: "0.0 0.1 1.0"},
		{name: "in turn", told: []told{{0, 2, 0, 2}, {0, 1, 1, 2}, {1, 2, 0, 2}}, machines: "aaa", want: "0.0 1.0 0.1"},
		{name: "the node alone", told: []told{{u, u, 1, u}, {u, u, 0, u}, {u, u, 1, u}}, machines: "aaa", want: "1.0 0.0 1.1"},
		{name: "local ranks from behind", told: []told{{1, u, 0, u}, {0, u, 0, u}, {u, u, 0, u}}, machines: "aaa", want: "0.1 0.0 0.2"},
		{name: "local ranks on machines in turn", told: []told{{0, 2, u, u}, {0, 2, u, u}, {1, 2, u, u}, {1, 2, u, u}}, machines: "abab", want: "0.0 1.0 0.1 1.1"},
		{name: "a container a rank", told: []told{{0, 2, u, u}, {1, 2, u, u}, {0, 1, u, u}}, machines: "abc", want: "0.0 0.1 1.0"},
		{name: "one machine as several nodes", told: []told{{0, 1, u, u}, {0, 1, u, u}}, machines: "aa", want: "0.0 1.0"},
		{name: "who knows", told: []told{{0, 2, u, u}, {0, 2, u, u}, {1, 2, u, u}, {1, 2, u, u}}, machines: "aaaa",
			fault: "GROUP_RANK is not set, and which ranks share a node does not follow from the rest: LOCAL_WORLD_SIZE is 2 for rank 0, but its node has 4: ranks 0, 1, 2, 3"},
		{name: "one does not say", told: []told{{u, u, u, u}, {u, u, 0, u}}, machines: "aa", fault: "GROUP_RANK is set for rank 1, but not for rank 0"},
		{name: "a gap", told: []told{{u, u, 0, u}, {u, u, 2, u}}, machines: "aa", fault: "GROUP_RANK goes up to 2, but no rank has 1"},
		{name: "another number of nodes", told: []told{{u, u, 0, 2}, {u, u, 0, 2}}, machines: "aa", fault: "GROUP_WORLD_SIZE is 2 for rank 0, but the ranks are on 1 nodes"},
		{name: "another size", told: []told{{0, 2, 0, u}, {1, 2, 0, u}, {1, 2, 0, u}}, machines: "aaa", fault: "LOCAL_WORLD_SIZE is 2 for rank 0, but its node has 3: ranks 0, 1, 2"},
		{name: "one local rank twice", told: []told{{0, 2, 0, u}, {0, 2, 0, u}}, machines: "aa", fault: "LOCAL_RANK is 0 for ranks 0 and 1, which are on one node"},
		{name: "a local rank of another node", told: []told{{0, u, 0, u}, {1, u, 1, u}}, machines: "aa", fault: "LOCAL_RANK is 1 for rank 1, but its node has 1: rank 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var places []Placement
			for r, p := range c.told {
				places = append(places, Placement{r, len(c.told), p.local, p.size, p.node, p.nodes})
			}
			err := AssignRanks(places, strings.Split(c.machines, ""))
			if c.fault != "" {
				if err == nil || err.Error() != c.fault {
					t.Fatalf("%v\nwant %s", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for r, p := range places {
				got = append(got, fmt.Sprintf("%d.%d", p.NodeRank, p.LocalRank))
				if peers := Peers(places, r); len(peers) != p.LocalSize || peers[p.LocalRank] != r || p.Nodes != strings.Count(c.want, ".0") {
					t.Errorf("rank %d: %+v, peers %v", r, p, peers)
				}
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}
