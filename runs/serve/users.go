package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// Token is one token of a user, as the file of users has it: with a hash in its place. A token has 130 random bits, so
// that nobody finds it from its SHA-256.
type Token struct {
	Name    string         `json:"name"`
	Grants  []access.Grant `json:"grants"`
	SHA256  string         `json:"sha256"`
	Created time.Time      `json:"created"`
}

func usersPath(home string) string { return filepath.Join(home, "users.json") }

// ListUsers returns the tokens, without anything from which one could be found.
func ListUsers(home string) (list []Token, err error) {
	text, err := os.ReadFile(usersPath(home))
	if errors.Is(err, fs.ErrNotExist) {
		return []Token{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		err = exit.WithHint(&sqldb.Error{Path: usersPath(home), What: "cannot be read", Err: err}, "drun serve users writes it; is there a copy in a backup?")
	}
	return list, err
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// userWith finds the user with a token that has this hash. The file is read each time, so that a revoked token is refused at once.
func userWith(home, hash string) (_ access.User, is bool, err error) {
	list, err := ListUsers(home)
	at := slices.IndexFunc(list, func(t Token) bool { return t.SHA256 == hash })
	if at < 0 || err != nil {
		return access.User{}, false, err
	}
	return access.User{Name: list[at].Name, Grants: list[at].Grants}, true, nil
}

var userForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN][\pL\pN ._@+-]{0,99}$`) })

// AddUser gives a user a new token, besides those that the user has.
func AddUser(home, name string, grants []access.Grant) (token string, err error) {
	if !userForm().MatchString(name) {
		return "", exit.Errorf(exit.Usage, "user %q: a name begins with a letter or digit and holds only letters, digits, spaces and . _ @ + - (at most 100)", name)
	}
	for _, g := range grants {
		if !slices.Contains(access.Roles, g.Role) {
			return "", exit.Errorf(exit.Usage, "role %q: want read, write or admin", g.Role)
		}
		if g.Project != "" {
			if err := history.CheckProject(g.Project); err != nil {
				return "", err
			}
		}
	}
	token = "drun_" + strings.ToLower(rand.Text())
	return token, changeUsers(home, func(list []Token) ([]Token, error) {
		return append(list, Token{name, grants, hashOf(token), time.Now().UTC().Truncate(time.Second)}), nil
	})
}

// RevokeUser removes all tokens of a user, and returns how many there were.
func RevokeUser(home, name string) (n int, err error) {
	return n, changeUsers(home, func(list []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(list), func(t Token) bool { return t.Name == name })
		if n = len(list) - len(left); n == 0 {
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "there is no user %q", name), "drun serve users list shows all")
		}
		return left, nil
	})
}

func changeUsers(home string, change func([]Token) ([]Token, error)) (err error) {
	defer try.Caught(&err)
	try.Ok(sqldb.Wrap(home, os.MkdirAll(home, sqldb.FolderMode)))
	release := try.To(history.Claim(home, "users"))
	for end := time.Now().Add(10 * time.Second); release == nil; release = try.To(history.Claim(home, "users")) {
		if time.Now().After(end) {
			return exit.Errorf(exit.Storage, "another process changes the users of %s", home)
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer release()
	return writeJSON(usersPath(home), try.To(change(try.To(ListUsers(home)))))
}

// writeJSON replaces a file: whoever reads it finds what was there before, or the value.
func writeJSON(path string, value any) (err error) {
	defer func() { err = sqldb.Wrap(path, err) }()
	defer try.Caught(&err)
	next := path + ".new"
	try.Ok(os.WriteFile(next, append(try.To(json.MarshalIndent(value, "", "  ")), '\n'), sqldb.FileMode))
	try.Ok(sqldb.Sync(next))
	return os.Rename(next, path)
}
