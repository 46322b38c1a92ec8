package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ranks parses whose output is shown: "all", "none", or ranks and ranges such as "0,4-7". world is the number of
// ranks; 0: not known yet.
func Ranks(text string, world int) (shows func(rank int) bool, err error) {
	switch text {
	case "", "all":
		return nil, nil
	case "none":
		return func(int) bool { return false }, nil
	}
	type span struct{ first, last int }
	var chosen []span
	for item := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, lastErr := strconv.Atoi(high)
		if err != nil || lastErr != nil || first < 0 || first > last {
			return nil, fmt.Errorf("want all, none, or ranks such as 0 or 0,4-7, not %q", text)
		}
		if world > 0 && last >= world {
			return nil, fmt.Errorf("there is no rank %d: the run has %d", last, world)
		}
		chosen = append(chosen, span{first, last})
	}
	return func(rank int) bool {
		return slices.ContainsFunc(chosen, func(s span) bool { return s.first <= rank && rank <= s.last })
	}, nil
}
