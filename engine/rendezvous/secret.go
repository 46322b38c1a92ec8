package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ReadSecret reads the secret from a file: its text without surrounding white space.
func ReadSecret(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(data)); text != "" {
		return text, nil
	}
	return "", fmt.Errorf("%s holds no secret: it is empty", file)
}

// SecretFile is the default file of a user's secret.
func SecretFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "drun", "secret"), nil
}

// OwnSecret returns the secret in [SecretFile]. If there is none, it is made, by only one of several processes that
// look at the same time.
func OwnSecret() (string, error) {
	file, err := SecretFile()
	if err != nil {
		return "", err
	}
	if secret, err := ReadSecret(file); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".secret-*") // of mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(rand.Text() + rand.Text() + "\n")
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return ReadSecret(file)
}
