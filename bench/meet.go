package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"syscall"
	"time"
)

// meetCommand measures how long many ranks on several nodes, which are network namespaces, take from start to exit: it takes
// root and the command ip.
const meetCommand = "meet"

// measureMeeting prints the seconds and the processor time of each round. The latter depends little on what else the machine does.
func measureMeeting(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(meetCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	rounds := flags.Int("rounds", 3, "how many times to measure")
	nodes := flags.Int("nodes", 8, "how many nodes")
	ranks := flags.Int("ranks", 8, "ranks of each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	net, err := newNetwork(*drun, *nodes)
	defer net.close()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n%d nodes × %d ranks\n", machine(), *nodes, *ranks)
	for range *rounds {
		began, used := time.Now(), childrenTime()
		if _, _, err := net.run(ctx, "bench/meet.star", [2]int{*nodes, *ranks}, "", nil); err != nil {
			return err
		}
		fmt.Fprintf(out, "%.2f s from start to exit, %.2f s of processor time\n", time.Since(began).Seconds(), childrenTime()-used)
	}
	return nil
}

// childrenTime is the processor time of all processes that were started here and have ended, in seconds.
func childrenTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}
