package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/serve"
	"drun/runs/serve/access"
)

func newServe() *cobra.Command {
	var o serve.Options
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the history to a team",
		Long: `Serves the pages of drun ui and takes runs of drun push and drun run --server, for those who have a token (drun serve users), until
SIGINT or SIGTERM. Without --tls-cert the connection is not encrypted: then let a reverse proxy on this machine do that.
docs/team.md says how a team begins.`,
		Example: `  drun serve users add ada --role write
  drun serve --listen :8443 --tls-cert cert.pem --tls-key key.pem --backup /backup/drun --every 1h`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (o.Cert == "") != (o.Key == "") {
				return usage("", "--tls-cert and --tls-key belong together")
			}
			if o.Backup != "" && o.Every < time.Second {
				return usage("for example --every 1h", "--every %s: at least a second lies between two backups", o.Every)
			}
			o.Home = homeOf(cmd)
			o.Say = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n", terminal.Lines(text)) }
			o.Collect = func() error { _, err := collectGarbage(o.Home, cmd.ErrOrStderr()); return err }
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			server := try.To(serve.New(ctx, o))
			defer server.Close()
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
			if err != nil {
				return exit.WithHint(exit.Errorf(exit.Usage, "--listen: %v", err), "for example --listen :8080")
			}
			scheme := "http"
			if o.Cert != "" {
				scheme = "https"
			}
			address := scheme + "://" + listener.Addr().String()
			try.Ok(answer(cmd, map[string]string{"address": address}, "%s", address))
			return server.Serve(ctx, listener)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8080", "`address` to listen on; :8080 is every address of this machine")
	f.StringVar(&o.Cert, "tls-cert", "", "`file` of the certificate for TLS, and of those that vouch for it")
	f.StringVar(&o.Key, "tls-key", "", "`file` of the certificate's key")
	f.StringVar(&o.Backup, "backup", "", "`folder` for backups of the home, each a tar archive (drun backup); the newest 24 stay")
	f.DurationVar(&o.Every, "every", time.Hour, "time between two backups")
	f.StringVar(&o.Artifacts, "artifacts", "", "`bucket` for artifacts and the chunks of checkpoints, as s3://BUCKET/PREFIX, instead of the home; credentials as AWS's tools take them")
	users := &cobra.Command{Use: "users", Short: "Who may use the server"}
	users.AddCommand(newUsersAdd(), newUsersList(), newUsersRevoke())
	cmd.AddCommand(users, newServeRules(), newServeUsage())
	return cmd
}

func newUsersAdd() *cobra.Command {
	var role string
	var projects []string
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Make a token for a user, and print it once",
		Example: "  drun serve users add ada --role write\n  drun serve users add bob --role read --project vision",
		RunE: func(cmd *cobra.Command, args []string) error {
			grants := []access.Grant{{Role: access.Role(role)}}
			if len(projects) > 0 {
				grants = each.Of(projects, func(p string) access.Grant { return access.Grant{Role: access.Role(role), Project: p} })
			}
			token := try.To(serve.AddUser(homeOf(cmd), args[0], grants))
			return answer(cmd, map[string]any{"name": args[0], "token": token}, "%s", token)
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "what the user may do: read, write or admin")
	cmd.Flags().StringArrayVar(&projects, "project", nil, "only in this `project` (repeatable)")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

func newUsersList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List users and what they may do",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := try.To(serve.ListUsers(homeOf(cmd)))
			return show(cmd, list, func(out io.Writer, list []serve.Token) error {
				for _, t := range list {
					grants := each.Of(t.Grants, func(g access.Grant) string {
						if g.Project == "" {
							return string(g.Role)
						}
						return string(g.Role) + " in " + g.Project
					})
					fmt.Fprintf(out, "%-20s %-30s since %s\n", t.Name, strings.Join(grants, ", "), t.Created.Format("2006-01-02"))
				}
				return nil
			})
		},
	}
}

func newUsersRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Take back all tokens of a user",
		RunE: func(cmd *cobra.Command, args []string) error {
			n := try.To(serve.RevokeUser(homeOf(cmd), args[0]))
			return answer(cmd, map[string]any{"name": args[0], "tokens": n}, "revoked %d", n)
		},
	}
}

func newServeRules() *cobra.Command {
	cmd := &cobra.Command{Use: "rules", Short: "For how long the server keeps runs and weights"}
	var weights, runs string
	set := &cobra.Command{
		Use:   "set [PROJECT]",
		Short: "Set the rule of a project, or of all that have none",
		Long: `Sets for how long runs are kept after their end: --runs D moves them to the trash then and frees them, and --weights D leaves them only their
best and their last checkpoint. A run with the tag keep stays as it is. Without both, the rule is removed. The server applies the rules every hour.`,
		Example: "  drun serve rules set vision --weights 30d --runs 365d",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var rule serve.Rule
			if weights != "" {
				rule.Weights = try.To(serve.ParseAge(weights))
			}
			if runs != "" {
				rule.Runs = try.To(serve.ParseAge(runs))
			}
			return serve.SetRule(homeOf(cmd), strings.Join(args, ""), rule)
		},
	}
	set.Flags().StringVar(&weights, "weights", "", "after this `time`, such as 30d, only the best and the last checkpoint stay")
	set.Flags().StringVar(&runs, "runs", "", "after this `time` a run is removed")
	var dry bool
	apply := &cobra.Command{
		Use:   "apply",
		Short: "Apply the rules now",
		RunE: func(cmd *cobra.Command, _ []string) error {
			due := append([]serve.Due{}, try.To(serve.Overdue(homeOf(cmd), time.Now()))...)
			if !dry {
				try.Ok(serve.Remove(homeOf(cmd), due))
				try.To(collectGarbage(homeOf(cmd), cmd.ErrOrStderr()))
			}
			return show(cmd, due, func(out io.Writer, due []serve.Due) error {
				for _, d := range due {
					what := "the run"
					if !d.All {
						what = english.Plural(len(d.Steps), "checkpoint", "")
					}
					fmt.Fprintf(out, "run %d %s: %s\n", d.ID, terminal.Escape(d.Name), what)
				}
				return nil
			})
		},
	}
	apply.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, try.To(serve.Rules(homeOf(cmd))), func(out io.Writer, rules map[string]serve.Rule) error {
				for _, project := range slices.Sorted(maps.Keys(rules)) {
					fmt.Fprintf(out, "%-20s runs %s, weights %s (0d: for ever)\n", cmp.Or(project, "(others)"), rules[project].Runs, rules[project].Weights)
				}
				return nil
			})
		},
	}
	cmd.AddCommand(set, list, apply)
	return cmd
}

func newServeUsage() *cobra.Command {
	return &cobra.Command{
		Use:   "usage",
		Short: "Show what each user's runs take of the disk",
		RunE: func(cmd *cobra.Command, _ []string) error {
			size := func(n int64) string { return humanize.IBytes(uint64(n)) }
			return show(cmd, try.To(serve.UsageOf(homeOf(cmd))), func(out io.Writer, list []serve.Usage) error {
				return printList(out, list, []column[serve.Usage]{
					{"USER", func(u serve.Usage) any { return u.User }},
					{"RUNS", func(u serve.Usage) any { return u.Runs }},
					{"CHECKPOINTS", func(u serve.Usage) any { return size(u.Checkpoints) }},
					{"ARTIFACTS", func(u serve.Usage) any { return size(u.Artifacts) }},
					{"SHARED", func(u serve.Usage) any { return size(u.Shared) }},
				})
			})
		},
	}
}
