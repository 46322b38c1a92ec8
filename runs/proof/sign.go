package proof

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

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
	return func(root string) ([]byte, error) {
		signature, err := keygen(root+"\n", "sign", "-q", "-f", key, "-n", namespace)
		if err != nil {
			return nil, exit.WithCode(err, exit.Usage)
		}
		return []byte(signature + "\n"), nil
	}
}

// armored is the text of a signature, as ssh-keygen writes it.
func armored(signature []byte) string {
	text := "-----BEGIN SSH SIGNATURE-----\n"
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(signature)), 70) {
		text += string(line) + "\n"
	}
	return text + "-----END SSH SIGNATURE-----\n"
}

// signer checks the signature, and names its key.
func (p *Pack) signer() (string, error) {
	block, _ := pem.Decode(p.signed)
	if block == nil || armored(block.Bytes) != string(p.signed) { // the same signature could be written in other ways, and every byte counts
		return "", p.broken("%s is not a signature, or was changed", signatureName)
	}
	said, err := p.keygen(p.Root+"\n", "check-novalidate")
	if err != nil && exit.CodeOf(err) != exit.Usage {
		return "", p.broken("its signature is not one of its root (%v)", err)
	}
	_, key, _ := strings.Cut(said, " with ")
	return key, err
}

// keygen asks ssh-keygen about the signature.
func (p *Pack) keygen(stdin string, args ...string) (_ string, err error) {
	defer try.Caught(&err)
	dir := try.To(scratch.Make("sign-"))
	defer dir.Remove()
	path := filepath.Join(dir.Path, signatureName)
	try.Ok(os.WriteFile(path, p.signed, 0o600))
	return keygen(stdin, append(args, "-n", namespace, "-s", path)...)
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
	found, err := p.keygen("", "find-principals", "-f", allowed)
	who, _, _ = strings.Cut(found, "\n")
	if err == nil {
		_, err = p.keygen(p.Root+"\n", "verify", "-f", allowed, "-I", who)
	}
	if err != nil && exit.CodeOf(err) != exit.Usage {
		err = exit.WithHint(exit.Errorf(exit.Recipe, "%s is signed by nobody in %s", p.Path, allowed), "its key: "+p.Signer)
	}
	return who, err
}
