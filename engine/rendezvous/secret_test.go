package rendezvous

import (
	"errors"
	"os"
	"sync"
	"testing"
)

func TestOwnSecret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	secrets := make([]string, 20)
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() {
			var err error
			if secrets[i], err = OwnSecret(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range secrets {
		if s != secrets[0] || len(s) < 40 {
			t.Fatalf("%q and %q", s, secrets[0])
		}
	}
	file, err := SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir + "/drun"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := os.WriteFile(file, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OwnSecret(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty secret: %v", err)
	}
}
