package elapsed

import "testing"

func TestText(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 s", 3e-8: "0.0 µs", 9.94e-6: "9.9 µs", 9.96e-6: "10 µs", 0.00042: "420 µs", 0.0009951: "1.0 ms",
		0.0014: "1.4 ms", 0.0874: "87 ms", 0.0996: "100 ms", 0.124: "120 ms", 0.9949: "990 ms", 0.9951: "1.0 s", 1.25: "1.3 s", 9.94: "9.9 s", 9.96: "10 s",
		12.5: "13 s", 59.49: "59 s", 59.5: "1m00s", 245: "4m05s", 3599.4: "59m59s", 3599.6: "1h00m", 3720: "1h02m", 360000: "100h00m"} {
		if got := Text(seconds); got != want {
			t.Errorf("Text(%v) = %q, want %q", seconds, got, want)
		}
	}
}
