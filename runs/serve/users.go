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

// Users are those who may use the server of a home. The file is read again when it has changed, so that a revoked token is
// refused at once.
type Users struct {
	home string

	mu     sync.Mutex
	read   os.FileInfo
	tokens map[string]Token // by hash
}

func NewUsers(home string) *Users { return &Users{home: home} }

func usersPath(home string) string { return filepath.Join(home, "users.json") }

func readUsers(home string) (list []Token, info os.FileInfo, err error) {
	defer try.Caught(&err)
	file, err := os.Open(usersPath(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	try.Ok(sqldb.Wrap(usersPath(home), err))
	defer file.Close()
	info = try.To(file.Stat())
	if err := json.NewDecoder(file).Decode(&list); err != nil {
		return nil, nil, exit.WithHint(&sqldb.Error{Path: usersPath(home), What: "cannot be read", Err: err}, "drun serve users writes it; is there a copy in a backup?")
	}
	return list, info, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Find returns the user with a token, and the token's hash.
func (u *Users) Find(token string) (_ access.User, hash string, is bool, err error) {
	hash = hashOf(token)
	user, is, err := u.ByHash(hash)
	return user, hash, is, err
}

// ByHash returns the user with a token that has this hash.
func (u *Users) ByHash(hash string) (_ access.User, is bool, err error) {
	defer try.Caught(&err)
	u.mu.Lock()
	defer u.mu.Unlock()
	now, serr := os.Stat(usersPath(u.home))
	if serr != nil {
		now = nil
	}
	if u.tokens == nil || (now == nil) != (u.read == nil) || now != nil && (!os.SameFile(now, u.read) || !now.ModTime().Equal(u.read.ModTime()) || now.Size() != u.read.Size()) {
		list, info := try.To2(readUsers(u.home))
		u.tokens, u.read = map[string]Token{}, info
		for _, t := range list {
			u.tokens[t.SHA256] = t
		}
	}
	t, is := u.tokens[hash]
	return access.User{Name: t.Name, Grants: t.Grants}, is, nil
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

// ListUsers returns the tokens, without anything from which one could be found.
func ListUsers(home string) ([]Token, error) {
	list, _, err := readUsers(home)
	return append([]Token{}, list...), err
}

func changeUsers(home string, change func([]Token) ([]Token, error)) (err error) {
	defer try.Caught(&err)
	try.Ok(sqldb.Wrap(home, os.MkdirAll(home, sqldb.FolderMode)))
	release := func() {}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if release, err = history.Claim(home, "users"); release != nil || err != nil || time.Now().After(end) {
			break
		}
	}
	try.Ok(err)
	if release == nil {
		return exit.Errorf(exit.Storage, "another process changes the users of %s", home)
	}
	defer release()
	list, _ := try.To2(readUsers(home))
	list = try.To(change(list))
	text := try.To(json.MarshalIndent(list, "", "  "))
	path := usersPath(home)
	next := path + ".new"
	try.Ok(sqldb.Wrap(path, os.WriteFile(next, append(text, '\n'), sqldb.FileMode)))
	try.Ok(sqldb.Wrap(path, sqldb.Sync(next)))
	return sqldb.Wrap(path, os.Rename(next, path))
}
