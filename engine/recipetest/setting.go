package recipetest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"drun/starlib/lang/chunk"
)

// setting is how a chunk is run, from the comments at its beginning.
type setting struct {
	ranks      []int
	exit       int
	everywhere bool
	within     time.Duration
	timeout    time.Duration
	prints     string
	params     []string
	ordered    bool
	restarts   int
	alone      bool
}

func settings(c chunk.Chunk) (s setting, err error) {
	s = setting{ranks: c.Ranks, within: 30 * time.Second, timeout: 20 * time.Second}
	if len(s.ranks) == 0 {
		s.ranks = []int{1}
	}
	if len(c.Want) > 0 {
		s.exit = 1
	}
	for key, value := range c.Header {
		switch key {
		case "name", "ranks":
		case "exit":
			s.exit, err = strconv.Atoi(value)
		case "everywhere":
			s.everywhere = value == "yes"
		case "within":
			s.within, err = time.ParseDuration(value)
		case "timeout":
			s.timeout, err = time.ParseDuration(value)
		case "prints":
			s.prints = value
		case "deterministic":
			s.ordered = value == "yes"
		case "restarts":
			s.restarts, err = strconv.Atoi(value)
		case "alone":
			s.alone = value == "yes"
		case "params":
			s.params = strings.Fields(value)
		default:
			err = fmt.Errorf("unknown heading %q", key)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
