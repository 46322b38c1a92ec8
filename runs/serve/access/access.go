// Package access says who makes a request of a team's server, and what that user may do there. The server
// (runs/serve) finds the user by a token before any handler is called; handlers ask [Of].
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"drun/internal/exit"
)

// Role is what a user may do with the runs of a project. Each role includes the ones before it.
type Role string

const (
	Read  Role = "read"  // see runs, and take copies of them
	Write Role = "write" // enter runs, and change them
	Admin Role = "admin" // remove runs, and see what the server does
)

// Roles are all roles, the least first.
var Roles = []Role{Read, Write, Admin}

// Grant is a role in one project, or in all.
type Grant struct {
	Role    Role   `json:"role"`
	Project string `json:"project,omitempty"` // "": all projects, and runs without one
}

// User is who makes a request.
type User struct {
	Name   string
	Grants []Grant
	Via    string // the address that the request came from
	audit  func(Event)
}

// May reports whether the user has a role for the runs of a project; "" are the runs without one.
func (u *User) May(role Role, project string) bool {
	return slices.ContainsFunc(u.Grants, func(g Grant) bool {
		return slices.Index(Roles, g.Role) >= slices.Index(Roles, role) && (g.Project == "" || g.Project == project)
	})
}

// Within lists the projects in which the user has a role; nil: in all, which includes runs without a project. A user who has
// it nowhere gets an empty list.
func (u *User) Within(role Role) []string {
	projects := []string{}
	for _, g := range u.Grants {
		if slices.Index(Roles, g.Role) < slices.Index(Roles, role) {
			continue
		}
		if g.Project == "" {
			return nil
		}
		projects = append(projects, g.Project)
	}
	return projects
}

// Must returns a *Denied unless the user has a role for the runs of a project.
func (u *User) Must(role Role, project string) error {
	if u.May(role, project) {
		return nil
	}
	return &Denied{u.Name, role, project}
}

// Denied is the error of a request that its user may not make; its HTTP status is 403.
type Denied struct {
	User    string
	Role    Role
	Project string
}

func (e *Denied) Error() string {
	verb := map[Role]string{Read: "read", Write: "write", Admin: "administer"}[e.Role]
	if e.Project == "" {
		return fmt.Sprintf("%s may not %s runs without a project here", e.User, verb)
	}
	return fmt.Sprintf("%s may not %s runs of the project %s", e.User, verb, e.Project)
}

func (e *Denied) Hint() string {
	return fmt.Sprintf("whoever runs the server can change that: drun serve users add %s --role %s", e.User, e.Role)
}

func (e *Denied) ExitCode() exit.Code { return exit.Usage }
func (e *Denied) HTTPStatus() int     { return http.StatusForbidden }

// IsDenied reports whether an error says that the user may not do that.
func IsDenied(err error) bool { return errors.As(err, new(*Denied)) }

// Event is what a user did, for the audit log.
type Event struct {
	Action  string `json:"action"` // such as enter, change, remove
	Run     string `json:"run,omitempty"`
	UID     string `json:"uid,omitempty"`
	Project string `json:"project,omitempty"`
	What    string `json:"what,omitempty"` // more about it
}

// Log adds an event to the audit log. A handler calls it once something was written.
func (u *User) Log(e Event) {
	if u.audit != nil {
		u.audit(e)
	}
}

type key struct{}

// With returns a context in which [Of] gives the user, whose events audit takes.
func With(ctx context.Context, u User, audit func(Event)) context.Context {
	u.audit = audit
	return context.WithValue(ctx, key{}, &u)
}

// Of is the user whose request it is. Where none was found, it is one who may do nothing.
func Of(ctx context.Context) *User {
	if u, is := ctx.Value(key{}).(*User); is {
		return u
	}
	return &User{Name: "nobody"}
}
