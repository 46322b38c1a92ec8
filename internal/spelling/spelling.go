// Package spelling compares names, so that errors can say what was probably meant.
package spelling

import "strings"

// Nearest returns the first of the nearest names that is within a third of name's
// length in edits, or "". Capitals do not count.
func Nearest(name string, names []string) string {
	best, limit := "", (len(name)+2)/3+1
	for _, candidate := range names {
		if d := Distance(strings.ToLower(name), strings.ToLower(candidate)); d < limit && d < len(name) {
			best, limit = candidate, d
		}
	}
	return best
}

// Distance counts insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (Damerau-Levenshtein, restricted).
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, above := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range above {
		above[j] = j
	}
	for i := range x {
		row := make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(above[j]+cost, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(y)]
}
