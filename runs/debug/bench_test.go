package debug

import (
	"testing"
	"time"
)

// What a step back takes in the examples, and how much of it is not computation from the state with which it begins: one after
// another, and when a person has looked at each until the next one's repetition stands ready.
func BenchmarkStepBack(b *testing.B) {
	for _, c := range []struct{ name, at string }{{"digits", "break update 150"}, {"gpt", "break update 30"}} {
		for _, kind := range []string{"at-once", "looking"} {
			b.Run(c.name+"/"+kind, func(b *testing.B) {
				s := launch(b, options(b, "../../examples/"+c.name+".star", 2)).start()
				s.do(c.at, "continue", "delete", "next", "back") // which keeps states
				var took time.Duration
				var computed float64
				for b.Loop() {
					if kind == "looking" {
						s.prepared()
					}
					began := time.Now()
					s.do("back")
					took += time.Since(began)
					computed += s.shown().at(s.Rank).Stop.Seconds
				}
				n := float64(b.N)
				b.ReportMetric(took.Seconds()*1000/n, "ms/back")
				if kind == "at-once" {
					b.ReportMetric((took.Seconds()-computed)*1000/n, "ms-beyond-computation")
				}
			})
		}
	}
}
