package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is cobra's help command, but a topic that does not exist is a usage
// error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND or TOPIC]",
		Short: "Help about a command or topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("see: drun help", "there is no help on %q", strings.Join(args, " "))
			}
			return about.Help()
		},
	}
}

// helpTopics are texts that "drun help TOPIC" prints.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{{
		Use:   "exit-codes",
		Short: "What drun's exit codes mean",
		Long: `Exit codes:

    0  done
    1  the recipe failed
    2  usage: a wrong flag, argument, name, parameter or query
    3  a rank was killed or lost
    4  a collective timed out
    5  ranks disagreed (mismatch)
    6  a backend or plugin failed
    7  storage failed: the history or checkpoints cannot be read or written
    8  a required metric was not reached
  130  interrupted`,
	}, {
		Use:   "environment",
		Short: "Environment variables that drun reads",
		Long: `Environment:

  DRUN_HOME  folder of the history and checkpoints, default .drun; --home wins
  NO_COLOR   when set, no colours and no progress bars`,
	}}
}
