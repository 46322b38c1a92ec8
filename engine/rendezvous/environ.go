package rendezvous

import (
	"fmt"
	"net"
	"strconv"

	"drun/internal/exit"
)

// An EnvironError says which variable keeps a process from joining a world.
type EnvironError struct{ Name, Problem string }

func (e *EnvironError) Error() string       { return e.Name + " " + e.Problem }
func (e *EnvironError) ExitCode() exit.Code { return exit.Usage }

// FromEnviron reads a rank's place, and the address (host:port) of the rendezvous, from the variables that torchrun
// and other launchers set: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; and, if they are set, LOCAL_RANK,
// LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE. Variables that are not set are [Unknown] in the place until
// all ranks have joined and [AssignPlaces] fills them in. lookup is os.LookupEnv. Errors are of type
// [EnvironError].
func FromEnviron(lookup func(string) (string, bool)) (p Place, address string, err error) {
	for _, v := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		if text, _ := lookup(v); text == "" {
			return Place{}, "", &EnvironError{v, "is not set: a rank that is started by itself needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}
		}
	}
	of := ""
	number := func(name string, least, most, otherwise int) int {
		text, _ := lookup(name)
		if text == "" || err != nil {
			return otherwise
		}
		n, convErr := strconv.Atoi(text)
		if convErr != nil || n < least || n > most {
			err = &EnvironError{name, fmt.Sprintf("is %q: want a whole number from %d to %d%s", text, least, most, of)}
			return otherwise
		}
		return n
	}
	p.WorldSize = number("WORLD_SIZE", 1, 1<<20, 1)
	of = fmt.Sprintf(" in a world of %d", p.WorldSize)
	p.Rank = number("RANK", 0, p.WorldSize-1, 0)
	most := func(count int) int { // the largest number below count, if count is known
		if count == Unknown {
			count = p.WorldSize
		}
		return count - 1
	}
	p.LocalSize = number("LOCAL_WORLD_SIZE", 1, p.WorldSize, Unknown)
	p.Nodes = number("GROUP_WORLD_SIZE", 1, p.WorldSize, Unknown)
	if p.LocalSize != Unknown {
		of = fmt.Sprintf(" where LOCAL_WORLD_SIZE is %d", p.LocalSize)
	}
	p.LocalRank = number("LOCAL_RANK", 0, most(p.LocalSize), Unknown)
	if of = fmt.Sprintf(" in a world of %d", p.WorldSize); p.Nodes != Unknown {
		of = fmt.Sprintf(" where GROUP_WORLD_SIZE is %d", p.Nodes)
	}
	p.NodeRank = number("GROUP_RANK", 0, most(p.Nodes), Unknown)
	of = ""
	port := number("MASTER_PORT", 1, 65535, 0)
	if err != nil {
		return Place{}, "", err
	}
	host, _ := lookup("MASTER_ADDR")
	return p, net.JoinHostPort(host, strconv.Itoa(port)), nil
}
