package freeport

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Nobody gets a port that somebody else was given, in this process or in another, and its kernel gives it to nobody.
func TestFind(t *testing.T) {
	if os.Getenv("FREEPORT_OF_ANOTHER") != "" {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(address + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
		return
	}
	seen := map[string]bool{}
	for range 5 {
		other := exec.Command(os.Args[0], "-test.run", "^TestFind$")
		other.Env = append(os.Environ(), "FREEPORT_OF_ANOTHER=yes")
		in, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = other.Wait() })
		text := make([]byte, 64)
		n, err := out.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		seen[strings.TrimSpace(string(text[:n]))] = true
	}
	for range (last - first) / 4 { // half of all: chance alone would repeat many
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Fatalf("%s was given already", address)
		}
		seen[address] = true
	}
	for address := range seen {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			continue
		}
		l.Close()
		break
	}
}

// A test that finds ports for hours does not run out of them.
func TestFindOften(t *testing.T) {
	for range (last - first) / 2 {
		if _, err := Find(); err != nil {
			t.Fatal(err)
		}
	}
}
