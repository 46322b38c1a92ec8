package transfer_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"drun/runs/transfer"
)

// Who waits for a server that does not answer is told once, after a second, and until when.
func TestNoAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	address := listener.Addr().String()
	ok(t, listener.Close())
	for patience, want := range map[time.Duration]int{500 * time.Millisecond: 0, 4 * time.Second: 1} {
		to, said, first := transfer.NewRemote(&http.Client{}, "http://"+address, ""), []string{}, time.Duration(0)
		began := time.Now()
		to.Patience, to.Say = patience, func(text string) { said, first = append(said, text), time.Since(began) }
		_, err := transfer.Greet(t.Context(), to, struct{}{})
		if err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("it says %v", err)
		}
		if len(said) != want || want > 0 && !strings.Contains(said[0], "no answer at http://"+address+", asking again until ") {
			t.Errorf("with patience for %v it is told %q", patience, said)
		}
		if want > 0 && first > patience-time.Second {
			t.Errorf("it is told after %v", first)
		}
	}
}
