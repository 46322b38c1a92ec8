// Package freeport finds free ports, for tests and benchmarks that start processes with a port number.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are even numbers in this range. It is below the ranges that kernels choose from, so that no connection takes
// a port before the intended process listens on it, and below the ports that drun derives from a launcher's variables.
const first, last = 10000, 18998

// held holds listeners on the port after each of the latest ports found, which keep other processes from finding the same port.
var held struct {
	sync.Mutex
	listeners []net.Listener
}

// most is how many ports are held, half of all: a test that finds thousands no longer uses its first ones.
const most = (last - first) / 4

// Find returns a port of 127.0.0.1 on which nothing listens, and which it has not returned lately.
func Find() (int, error) {
	var failures error
	for range 200 {
		port := first + 2*rand.IntN((last-first)/2+1)
		sign, err := listen(port + 1)
		if err != nil {
			failures = err
			continue
		}
		trial, err := listen(port)
		if err != nil {
			failures = errors.Join(err, sign.Close())
			continue
		}
		held.Lock()
		if held.listeners = append(held.listeners, sign); len(held.listeners) > most {
			held.listeners[0].Close()
			held.listeners = held.listeners[1:]
		}
		held.Unlock()
		return port, trial.Close()
	}
	return 0, fmt.Errorf("no port from %d to %d is free: %w", first, last, failures)
}

// Address returns 127.0.0.1 with a port from Find.
func Address() (string, error) {
	port, err := Find()
	return at(port), err
}

func listen(port int) (net.Listener, error) { return net.Listen("tcp", at(port)) }

func at(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
