package proof

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
)

// namespace keeps a signature of a root from being taken for one of anything else, as git's does.
const namespace = "drun"

func keygen(stdin string, args ...string) (out string, err error) {
	cmd := exec.Command("ssh-keygen", append([]string{"-Y"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", exit.WithHint(exit.Errorf(exit.Usage, "signatures need ssh-keygen, which is not installed"), "it comes with OpenSSH 8.1 or newer: apt-get install openssh-client")
	}
	if err != nil {
		return "", fmt.Errorf("ssh-keygen: %s", strings.TrimSpace(stderr.String()+string(answer)))
	}
	return strings.TrimSpace(string(answer)), nil
}

// signWith signs a root with the private key in a file, or the public one in it whose private key ssh-agent has.
func signWith(key string) func(root string) ([]byte, error) {
	return func(root string) (_ []byte, err error) {
		defer try.Caught(&err)
		dir := try.To(scratch.Make("sign-"))
		defer dir.Remove()
		path := filepath.Join(dir.Path, rootName)
		try.Ok(os.WriteFile(path, []byte(root+"\n"), 0o600))
		if _, err := keygen("", "sign", "-q", "-f", key, "-n", namespace, path); err != nil {
			return nil, exit.WithCode(err, exit.Usage)
		}
		return os.ReadFile(path + ".sig")
	}
}

var armored = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^-----BEGIN SSH SIGNATURE-----\n(.*)-----END SSH SIGNATURE-----\n$`)
})

// signer checks the signature, and names its key.
func (p *Pack) signer() (_ string, err error) {
	defer try.Caught(&err)
	text := armored().FindSubmatch(p.signed)
	if text == nil {
		return "", p.broken("%s is not a signature", signatureName)
	}
	// The same signature could be written in other ways, and every byte counts.
	raw, err := base64.StdEncoding.Strict().DecodeString(strings.ReplaceAll(string(text[1]), "\n", ""))
	var again strings.Builder
	for code := base64.StdEncoding.EncodeToString(raw); code != ""; {
		n := min(len(code), 70)
		again.WriteString(code[:n] + "\n")
		code = code[n:]
	}
	if err != nil || again.String() != string(text[1]) {
		return "", p.broken("%s was changed", signatureName)
	}
	return p.withSignature(func(path string) (string, error) {
		said, err := keygen(p.Root+"\n", "check-novalidate", "-n", namespace, "-s", path)
		if err != nil && exit.CodeOf(err) != exit.Usage {
			return "", p.broken("its signature is not one of its root (%v)", err)
		}
		_, key, _ := strings.Cut(said, " with ")
		return key, err
	})
}

func (p *Pack) withSignature(do func(path string) (string, error)) (_ string, err error) {
	defer try.Caught(&err)
	dir := try.To(scratch.Make("sign-"))
	defer dir.Remove()
	path := filepath.Join(dir.Path, signatureName)
	try.Ok(os.WriteFile(path, p.signed, 0o600))
	return do(path)
}

// SignedBy returns which of the people in a file of allowed signers, as ssh-keygen(1) describes it, has signed the pack.
// If nobody has, that is an error.
func (p *Pack) SignedBy(allowed string) (who string, err error) {
	if _, err := os.Stat(allowed); err != nil {
		return "", exit.Errorf(exit.Usage, "%s cannot be read: %w", allowed, cause(err))
	}
	if p.signed == nil {
		return "", exit.Errorf(exit.Recipe, "%s is not signed", p.Path)
	}
	return p.withSignature(func(path string) (string, error) {
		found, err := keygen("", "find-principals", "-f", allowed, "-n", namespace, "-s", path)
		who, _, _ = strings.Cut(found, "\n")
		if err == nil {
			_, err = keygen(p.Root+"\n", "verify", "-f", allowed, "-I", who, "-n", namespace, "-s", path)
		}
		if err != nil && exit.CodeOf(err) != exit.Usage {
			return "", exit.WithHint(exit.Errorf(exit.Recipe, "%s is signed by nobody in %s", p.Path, allowed), "its key: "+p.Signer)
		}
		return who, err
	})
}
