package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"time"
)

// The socket of a run's agent can be called on the agent's machine alone. Where machines share a home, those on another write a
// question to the file <uid>.ask, and the agent its answer to <uid>.told, followed by the question. Both files are there as long
// as the socket is, and are written in place: a shared disk (NFS) shows what is in a file when it is opened, but that a folder has
// another file only after half a minute.

const (
	askSuffix, toldSuffix = ".ask", ".told"
	askedEvery            = 500 * time.Millisecond // how often the agent looks for a question
	heardEvery            = 50 * time.Millisecond
)

// hear answers questions in the file until closed.
func (l *live) hear(closed <-chan struct{}) {
	answered := []byte{}
	for {
		select {
		case <-closed:
			return
		case <-time.After(askedEvery):
		}
		if question, err := os.ReadFile(l.path + askSuffix); err == nil && !bytes.Equal(question, answered) {
			answered = question
			_ = rewrite(l.path+toldSuffix, slices.Concat(l.answer(), []byte("\n"), question)) // else nobody is told
		}
	}
}

// askFile asks an agent on another machine, by the path of its socket. Without an answer in time the error is that of ctx.
func askFile(ctx context.Context, path string) ([]byte, error) {
	question := []byte(rand.Text())
	err := rewrite(path+askSuffix, question) // an agent that is gone has no such file
	for err == nil {
		text, _ := os.ReadFile(path + toldSuffix)
		if answer, whole := bytes.CutSuffix(text, append([]byte("\n"), question...)); whole {
			return answer, nil
		}
		if newer, err := os.ReadFile(path + askSuffix); err == nil && len(newer) == len(question) {
			question = newer // somebody else's, whose answer does as well
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(heardEvery):
		}
	}
	return nil, err
}

// rewrite replaces what is in a file, which stays the same file.
func rewrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
