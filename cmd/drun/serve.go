package main

import (
	"fmt"
	"io"
	"net"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"drun/internal/each"
	"drun/internal/exit"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (o.Cert == "") != (o.Key == "") {
				return usage("", "--tls-cert and --tls-key belong together")
			}
			o.Home = homeOf(cmd)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			server := try.To(serve.New(o))
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
	users := &cobra.Command{Use: "users", Short: "Who may use the server"}
	users.AddCommand(newUsersAdd(), newUsersList(), newUsersRevoke())
	cmd.AddCommand(users)
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
