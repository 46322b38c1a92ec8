package board

import (
	"slices"
	"testing"

	"drun/collective"
)

func TestUnreceived(t *testing.T) {
	line := func(n int32) collective.Position { return collective.Position{File: "a.star", Line: n} }
	sent := func(peer, tag int, n uint64, at int32) Count {
		return Count{Peer: peer, Tag: tag, N: n, Last: line(at)}
	}
	got := func(peer, tag int, n uint64) Count { return Count{Peer: peer, Tag: tag, N: n} }
	for name, test := range map[string]struct {
		ranks map[int][]Messages
		want  []Lost
	}{
		"nothing was sent": {map[int][]Messages{0: nil, 1: nil}, nil},
		"all came": {map[int][]Messages{
			0: {{Sent: []Count{sent(1, 4, 2, 9)}, Received: []Count{got(1, 4, 1)}}},
			1: {{Sent: []Count{sent(0, 4, 1, 8)}, Received: []Count{got(0, 4, 2)}}},
		}, nil},
		"groups and tags have counts of their own, and senders come in order": {map[int][]Messages{
			2: {{Sent: []Count{sent(1, 5, 1, 7)}, Received: []Count{got(1, 5, 1)}}, {Group: 3, Sent: []Count{sent(1, 5, 2, 6)}, Received: []Count{got(1, 4, 1)}}},
			1: {{Sent: []Count{sent(2, 5, 1, 4)}, Received: nil}, {Group: 3, Sent: []Count{sent(2, 4, 1, 5)}, Received: []Count{got(2, 5, 1)}}},
		}, []Lost{{0, 2, 1, 5, 1, line(7)}, {3, 2, 1, 5, 1, line(6)}}},
		"tags that one of the two does not tell apart": {map[int][]Messages{
			0: {{Sent: []Count{sent(1, ManyTags, 3, 9), sent(1, 1, 1, 2), sent(2, 1, 1, 3)}}},
			1: {{Received: []Count{got(0, 1, 1), got(0, 2, 1), got(0, 3, 1)}}},
			2: {{Received: []Count{got(0, 1, 1)}}},
		}, []Lost{{0, 0, 1, ManyTags, 1, line(9)}}},
	} {
		if got := Unreceived(test.ranks); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
