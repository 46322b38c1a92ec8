package debug

import (
	"testing"
	"time"
)

// What a step back takes in the examples, and how much of it is not computation from the state with which it begins.
func BenchmarkStepBack(b *testing.B) {
	for _, c := range []struct{ name, at string }{{"digits", "break update 150"}, {"gpt", "break update 30"}} {
		b.Run(c.name, func(b *testing.B) {
			s := launch(b, options(b, "../../examples/"+c.name+".star", 2)).start()
			s.do(c.at, "continue", "delete", "next", "back") // which keeps states
			var took time.Duration
			var computed float64
			for b.Loop() {
				began := time.Now()
				s.do("back")
				took += time.Since(began)
				computed += s.shown().at(s.Rank).Stop.Seconds
			}
			n := float64(b.N)
			b.ReportMetric(took.Seconds()*1000/n, "ms/back")
			b.ReportMetric((took.Seconds()-computed)*1000/n, "ms-beyond-computation")
		})
	}
}
