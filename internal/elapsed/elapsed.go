// Package elapsed formats durations for people, the same way throughout drun. The pages of drun ui do so too: duration in
// ui/assets/drun.js.
package elapsed

import (
	"fmt"
	"math"
)

// Text formats seconds, with two significant digits below a minute: 420 µs, 87 ms, 1.2 s, 4m05s, 1h02m.
func Text(seconds float64) string {
	if whole := int(math.Round(seconds)); whole >= 3600 {
		return fmt.Sprintf("%dh%02dm", whole/3600, whole%3600/60)
	} else if whole >= 60 {
		return fmt.Sprintf("%dm%02ds", whole/60, whole%60)
	}
	n, unit := seconds, "s"
	if seconds > 0 && seconds < 0.000995 {
		n, unit = seconds*1e6, "µs"
	} else if seconds > 0 && seconds < 0.995 {
		n, unit = seconds*1e3, "ms"
	}
	switch {
	case n >= 99.5:
		return fmt.Sprintf("%.0f %s", math.Round(n/10)*10, unit)
	case n >= 9.95 || n == 0:
		return fmt.Sprintf("%.0f %s", math.Round(n), unit)
	}
	return fmt.Sprintf("%.1f %s", math.Round(n*10)/10, unit)
}
