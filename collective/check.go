package collective

import (
	"fmt"
	"slices"

	"drun/internal/each"
)

// Check reports what is wrong with the call as rank makes it in a group of size ranks, as a *CallError. Backends call
// it first, so that all of them refuse the same calls with the same words.
func (c *Call) Check(rank, size int) error {
	if c.Kind == NoKind || c.Kind >= NewGroup {
		return c.errorf("unknown operation")
	}
	if c.Kind == Barrier {
		return nil
	}
	if c.Kind.Rooted() && (c.Root < 0 || c.Root >= size) {
		return c.errorf("root %d is not a rank of the group: its ranks are 0 to %d", c.Root, size-1)
	}
	if c.Kind.PointToPoint() {
		return c.checkPeer(rank, size)
	}
	send, recv := c.Uses(rank)
	if send && !c.Send.DType.Valid() || recv && !c.Recv.DType.Valid() {
		return c.errorf("a buffer has no dtype")
	}
	if send && recv && c.Send.DType != c.Recv.DType {
		return c.errorf("sends %v but receives %v", c.Send.DType, c.Recv.DType)
	}
	if c.Kind.Reduces() && !c.Reduce.Valid(c.Send.DType) {
		return c.errorf("op %v is not defined for %v", c.Reduce, c.Send.DType)
	}
	for _, counts := range [2][]int{c.Counts, c.RecvCounts} {
		if (counts != nil || c.Kind == AllToAll) && len(counts) != size {
			return c.errorf("the list of counts has %d entries for %d ranks", len(counts), size)
		}
		for _, n := range counts {
			if n < 0 {
				return c.errorf("negative count %d", n)
			}
		}
	}
	return c.checkSizes(rank, size, send, recv)
}

// Uses reports which of the two buffers this rank uses.
func (c *Call) Uses(rank int) (send, recv bool) {
	root := rank == c.Root
	switch c.Kind {
	case Barrier:
		return false, false
	case Send:
		return true, false
	case Recv:
		return false, true
	case Broadcast:
		return root, !root
	case Reduce, Gather:
		return true, root
	case Scatter:
		return root, true
	}
	return true, true
}

func (c *Call) checkSizes(rank, size int, send, recv bool) error {
	// part is the size of this rank's part, all that of all parts together; a rank with only one of the buffers
	// trusts it.
	part, all := -1, -1
	if c.Counts != nil && c.Kind != AllToAll {
		part, all = c.Counts[rank], Total(c.Counts)
	}
	want := func(name string, b Buffer, n int) error {
		if n >= 0 && b.Count() != n {
			return c.errorf("the %s buffer holds %d elements, but needs %d", name, b.Count(), n)
		}
		return nil
	}
	switch c.Kind {
	case AllReduce, Reduce:
		if recv {
			return want("receive", c.Recv, c.Send.Count())
		}
	case AllGather, Gather:
		if part < 0 {
			part, all = c.Send.Count(), c.Send.Count()*size
		}
		if err := want("send", c.Send, part); err != nil || !recv {
			return err
		}
		return want("receive", c.Recv, all)
	case Scatter, ReduceScatter:
		if part < 0 {
			part, all = c.Recv.Count(), c.Recv.Count()*size
		}
		if err := want("receive", c.Recv, part); err != nil || !send {
			return err
		}
		return want("send", c.Send, all)
	case AllToAll:
		if err := c.checkSplits("send", c.Send, c.Counts); err != nil {
			return err
		}
		return c.checkSplits("receive", c.Recv, c.RecvCounts)
	}
	return nil
}

func (c *Call) checkSplits(name string, b Buffer, counts []int) error {
	if sum := Total(counts); sum != b.Count() {
		return c.errorf("the %s counts add up to %d, but the buffer holds %d elements", name, sum, b.Count())
	}
	return nil
}

func (c *Call) checkPeer(rank, size int) error {
	data := c.Data()
	switch {
	case !data.DType.Valid():
		return c.errorf("the buffer has no dtype")
	case c.Kind == Recv && c.Peer == AnySource:
		return nil
	case c.Peer < 0 || c.Peer >= size:
		return c.errorf("rank %d is not in the group: its ranks are 0 to %d", c.Peer, size-1)
	case c.Peer == rank:
		return c.errorf("rank %d cannot exchange messages with itself", rank)
	}
	return nil
}

func (c *Call) errorf(format string, args ...any) error {
	return &CallError{Kind: c.Kind, Problem: fmt.Sprintf(format, args...)}
}

// CheckRanks finds what is wrong with the ranks of a group that is made from size ranks, as a *CallError.
func CheckRanks(ranks []int, size int) error {
	for i, r := range ranks {
		if r < 0 || r >= size {
			return &CallError{NewGroup, fmt.Sprintf("%d is not a rank: ranks are 0 to %d", r, size-1)}
		}
		if slices.Contains(ranks[:i], r) {
			return &CallError{NewGroup, fmt.Sprintf("duplicate rank %d in %s", r, RankList(ranks))}
		}
	}
	return nil
}

// AllRanks lists the ranks of a world of that size.
func AllRanks(size int) []int {
	return each.UpTo(size, func(rank int) int { return rank })
}

// Total adds up counts.
func Total(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// Evenly returns counts or, for nil, equal shares of n elements, one per rank; ranks must then divide n.
func Evenly(counts []int, n, ranks int) []int {
	if counts != nil {
		return counts
	}
	return slices.Repeat([]int{n / ranks}, ranks)
}
