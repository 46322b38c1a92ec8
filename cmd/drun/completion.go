package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/query"
	"drun/internal/terminal"
)

// completeFromHistory has the shell complete the runs, metrics and parameters of the history: the arguments that the lines
// of usage call RUN and METRIC, and the flags that take them.
func completeFromHistory(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeFromHistory(c)
	}
	if strings.Contains(cmd.Use, "RUN") {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			names := strings.Fields(cmd.Use)[1:]
			name := names[min(len(args), len(names)-1)]
			if strings.Contains(names[0], "…") { // any may come next
				name = cmd.Use
			}
			return fromHistory(cmd, name, typed)
		}
	}
	for flag, name := range map[string]string{"resume": "RUN", "diff": "RUN", "param": "PARAM", "tag": "TAG", "where": "EXPR", "sort": "EXPR", "columns": "EXPR", "minimize": "-METRIC", "early-stop": "-METRIC"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return fromHistory(cmd, name, typed)
			}) // fails only if the flag already has completions
		}
	}
}

// plainName matches what may follow a dot in an expression.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL_][\pL\pN_]*$`) })

// fromHistory lists the names that begin with what was typed; none if there is no history, or it cannot be read.
func fromHistory(cmd *cobra.Command, name, typed string) (words []string, how cobra.ShellCompDirective) {
	db, err := history.OpenReadOnly(homeOf(cmd))
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	defer db.Close()
	before := "" // what was typed before the name that is completed
	switch name {
	case "EXPR":
		start := strings.LastIndexFunc(typed, func(c rune) bool { return c != '.' && c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }) + 1
		before, typed = typed[:start], typed[start:]
	case "-METRIC":
		before = typed[:len(typed)-len(strings.TrimPrefix(typed, "-"))]
		typed = typed[len(before):]
	}
	add := func(word, about string) {
		if strings.HasPrefix(word, typed) {
			words, how = append(words, terminal.Escape(before+word)+about), how|cobra.ShellCompDirectiveNoFileComp
		}
	}
	if strings.Contains(name, "RUN") {
		add("last", "\tthe newest run")
		list, _ := db.Select(history.Selection{})
		for _, r := range list {
			add(r.Name, fmt.Sprintf("\trun %d, %s, %s", r.ID, r.Status, terminal.Escape(r.Recipe)))
		}
	}
	if strings.Contains(name, "METRIC") {
		list, _ := db.MetricNames()
		for _, metric := range list {
			add(metric, "")
		}
	}
	if name == "TAG" {
		list, _ := db.TagNames()
		for _, tag := range list {
			add(tag, "")
		}
	}
	if name == "EXPR" {
		for _, field := range query.Fields {
			add(field, "")
		}
		params, _ := db.ParamNames()
		metrics, _ := db.MetricNames()
		// Other names are written params["weight-decay"], which shells complete badly.
		other := func(name string) bool { return !plainName().MatchString(name) }
		for _, param := range slices.DeleteFunc(params, other) {
			add("params."+param, "")
		}
		for _, metric := range slices.DeleteFunc(metrics, other) {
			add("metrics."+metric+".last", "")
		}
		how |= cobra.ShellCompDirectiveNoSpace
	}
	if name == "PARAM" {
		list, _ := db.ParamNames()
		for _, param := range list {
			add(param+"=", "")
		}
		how |= cobra.ShellCompDirectiveNoSpace
	}
	return words, how
}
