// Package s3test starts a server that speaks S3, for tests of buckets: make bin/versitygw installs it.
package s3test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"drun/internal/freeport"
)

// program is the server's.
func program() string {
	dir, _ := os.Getwd()
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	return filepath.Join(dir, "bin/versitygw")
}

// Start starts a server with the bucket weights, and sets the environment variables with which it is reached. A test
// without the program is skipped.
func Start(t *testing.T) (address string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	program := program()
	if _, err := os.Stat(program); err != nil {
		t.Skip("there is no S3 server: make bin/versitygw")
	}
	port, err := freeport.Find()
	must(err)
	dir := t.TempDir()
	must(os.Mkdir(filepath.Join(dir, "weights"), 0o700))
	address = fmt.Sprintf("127.0.0.1:%d", port)
	server := exec.Command(program, "--access", "key", "--secret", "secret", "--port", address, "--quiet", "--iam-dir", t.TempDir(), "posix", dir)
	out := &bytes.Buffer{}
	server.Stdout, server.Stderr = out, out
	must(server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, err := http.Get("http://" + address); err == nil {
			a.Body.Close()
			break
		} else if time.Now().After(end) {
			t.Fatalf("the S3 server does not answer: %v\n%s", err, out)
		}
	}
	for key, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": "http://" + address, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": ""} {
		t.Setenv(key, value)
	}
	return address
}

// Reader sets the environment variables to credentials that may only read the bucket of Start.
func Reader(t *testing.T, address string) {
	t.Helper()
	program := exec.Command(program(), "admin", "--access", "key", "--secret", "secret", "--region", "us-east-1", "--endpoint-url", "http://"+address, "create-user", "--access", "reader", "--secret", "reading", "--role", "user")
	if out, err := program.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4("key", "secret", ""), Region: "us-east-1"})
	if err == nil {
		err = client.SetBucketPolicy(t.Context(), "weights", `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["reader"]},
			"Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::weights", "arn:aws:s3:::weights/*"]}]}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "reader")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "reading")
}
