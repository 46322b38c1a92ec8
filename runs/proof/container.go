// Package proof puts a run into one file that somebody else can check: the file commits to all of it, and a check runs
// parts of it again. docs/proof.md describes the file, and what a check proves.
//
// A pack is a zip archive without compression, whose bytes are decided by its content: the same content gives the same
// file, and a file with any other byte is refused. All of its text is made from history.db, and compared when it is
// opened, so that nobody reads there what a check did not see.
package proof

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"drun/internal/exit"
	"drun/internal/try"
)

// The members of a pack that are not part of the commitment, in their order at its end.
const (
	manifestName  = "manifest.txt"
	rootName      = "root.txt"
	signatureName = "root.txt.sig"
)

// member is a file in a pack.
type member struct {
	name string
	sum  [sha256.Size]byte
}

// line is how the manifest lists a member, which sha256sum --check understands.
func (m member) line() string { return hex.EncodeToString(m.sum[:]) + "  " + m.name + "\n" }

// rootOf is the root of the Merkle tree over the lines of the manifest, as in RFC 6962: leaves and inner nodes are
// hashed with different beginnings, so that none can be taken for the other.
func rootOf(members []member) [sha256.Size]byte {
	if len(members) == 1 {
		return sha256.Sum256([]byte("\x00" + members[0].line()))
	}
	half := 1
	for 2*half < len(members) {
		half *= 2
	}
	left, right := rootOf(members[:half]), rootOf(members[half:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

// archive writes the members of a pack. The zip package's output for these headers is part of the format: TestFormat has its
// sum.
type archive struct {
	zip     *zip.Writer
	members []member
}

func newArchive(w io.Writer) *archive { return &archive{zip: zip.NewWriter(w)} }

// epoch is the time of every member: the first that zip knows.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func (a *archive) add(name string, write func(io.Writer) error) (err error) {
	defer try.Caught(&err)
	to := summed{try.To(a.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: epoch})), sha256.New()}
	try.Ok(write(to))
	a.members = append(a.members, member{name, [sha256.Size]byte(to.sum.Sum(nil))})
	return nil
}

// end writes what commits to the members, and the signature that sign makes of the root; nil: none.
func (a *archive) end(sign func(root string) ([]byte, error)) (root string, err error) {
	defer try.Caught(&err)
	var manifest []byte
	for _, m := range a.members {
		manifest = append(manifest, m.line()...)
	}
	sum := rootOf(a.members)
	root = hex.EncodeToString(sum[:])
	try.Ok(a.add(manifestName, whole(manifest)))
	try.Ok(a.add(rootName, whole([]byte(root+"\n"))))
	if sign != nil {
		try.Ok(a.add(signatureName, whole(try.To(sign(root)))))
	}
	return root, a.zip.Close()
}

// whole writes a member that is in memory.
func whole(content []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(content); return err }
}

// summed passes on what is written, and computes its SHA-256, of much data on another core meanwhile.
type summed struct {
	to  io.Writer
	sum hash.Hash
}

func (s summed) Write(p []byte) (int, error) {
	if len(p) < 1<<16 {
		s.sum.Write(p)
		return s.to.Write(p)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.sum.Write(p) }()
	defer func() { <-done }()
	return s.to.Write(p)
}

// Broken is the error of a pack that is not as drun has written it.
type Broken struct {
	Path, Why string
}

func (e *Broken) Error() string       { return fmt.Sprintf("%s is not a whole pack: %s", e.Path, e.Why) }
func (e *Broken) ExitCode() exit.Code { return exit.Recipe }
func (e *Broken) Hint() string {
	return "it was changed or cut short after it was made: get it again, and compare its root with the one that its maker names"
}

// Pack is an open pack. Nothing in it has been executed.
type Pack struct {
	Path   string
	Root   string
	Signer string // of the signature, as ssh-keygen names the key; "": not signed
	Bytes  int64

	file    *os.File
	members map[string]*zip.File
	sums    map[string]string // the SHA-256 of those that are committed to
	signed  []byte
}

func (p *Pack) Close() error { return p.file.Close() }

func (p *Pack) broken(format string, args ...any) error {
	return &Broken{p.Path, fmt.Sprintf(format, args...)}
}

// IsPack reports whether a file may be a pack: whether it begins as a zip archive does.
func IsPack(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	start := make([]byte, 4)
	_, err = io.ReadFull(file, start)
	return err == nil && string(start) == "PK\x03\x04"
}

// Open opens a pack, and compares every byte of it with what its content says.
func Open(path string) (_ *Pack, err error) {
	defer try.Caught(&err)
	file, err := os.Open(path)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "%s cannot be read: %w", path, cause(err))
	}
	p := &Pack{Path: path, file: file, members: map[string]*zip.File{}, sums: map[string]string{}}
	defer try.CaughtOr(&err, func() { file.Close() })
	if !IsPack(path) {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s is not a pack", path), "drun pack RUN makes one")
	}
	p.Bytes = try.To(file.Stat()).Size()
	in, err := zip.NewReader(file, p.Bytes)
	if err != nil {
		return nil, p.broken("it cannot be read as a zip archive (%v)", err)
	}
	try.Ok(p.checkBytes(try.To(p.checkNames(in.File))))
	if p.signed != nil {
		p.Signer = try.To(p.signer())
	}
	return p, nil
}

func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// known are the names that members have: whole ones, and those beneath a folder.
var known = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(README\.txt|chain\.txt|history\.db|logs\.txt|metrics\.csv|run\.json|origin\.safetensors|checkpoints/(0|-?[1-9][0-9]{0,18})\.safetensors|(source|data)/.+)$`)
})

func validName(name string) bool {
	return known().MatchString(name) && fs.ValidPath(name) && utf8.ValidString(name) && len(name) < 1000 && !strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) })
}

// checkNames refuses members that a pack does not have, before anything is read, and returns those that are committed to.
func (p *Pack) checkNames(files []*zip.File) (committed []*zip.File, err error) {
	ends := []string{manifestName, rootName}
	if n := len(files); n > 0 && files[n-1].Name == signatureName {
		ends = append(ends, signatureName)
	}
	n := max(0, len(files)-len(ends))
	for i, f := range files {
		switch {
		case i >= n && f.Name != ends[i-n]:
			return nil, p.broken("its member %q should be %s", f.Name, ends[i-n])
		case i < n && !validName(f.Name):
			return nil, p.broken("it has a member %q", f.Name)
		case i < n && i > 0 && files[i-1].Name >= f.Name:
			return nil, p.broken("its member %q is not in order", f.Name)
		case f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.UncompressedSize64 > uint64(p.Bytes), f.Name == signatureName && f.UncompressedSize64 > 1<<20:
			return nil, p.broken("its member %q has an impossible size", f.Name)
		}
		p.members[f.Name] = f
	}
	for _, name := range append(ends, "README.txt", chainName, historyName, logsName, metricsName, runName) {
		if p.members[name] == nil {
			return nil, p.broken("%s is missing", name)
		}
	}
	return files[:n], nil
}

// checkBytes writes the pack again from its members, and compares.
func (p *Pack) checkBytes(committed []*zip.File) (err error) {
	defer try.Caught(&err)
	same := &comparing{with: bufio.NewReaderSize(io.NewSectionReader(p.file, 0, p.Bytes), 1<<20)}
	again, buffer := newArchive(same), make([]byte, 1<<20)
	for _, f := range committed {
		content := try.To(p.read(f.Name))
		if err := again.add(f.Name, func(w io.Writer) error { _, err := io.CopyBuffer(w, content, buffer); return err }); err != nil {
			return p.differs(err, "%s was changed", f.Name)
		}
	}
	for _, m := range again.members {
		p.sums[m.name] = hex.EncodeToString(m.sum[:])
	}
	var sign func(string) ([]byte, error)
	if p.members[signatureName] != nil {
		p.signed = try.To(io.ReadAll(try.To(p.read(signatureName))))
		sign = func(string) ([]byte, error) { return p.signed, nil }
	}
	if p.Root, err = again.end(sign); err != nil || same.at != p.Bytes {
		return p.differs(err, "%s, %s or the archive's directory was changed", manifestName, rootName)
	}
	return nil
}

// read is the content of a member.
func (p *Pack) read(name string) (*io.SectionReader, error) {
	f := p.members[name]
	if f == nil {
		return nil, p.broken("%s is missing", name)
	}
	offset, err := f.DataOffset()
	if err != nil {
		return nil, p.broken("%s cannot be read (%v)", name, err)
	}
	return io.NewSectionReader(p.file, offset, int64(f.UncompressedSize64)), nil
}

// same compares a member with what is written again; what it should be is for the error.
func (p *Pack) same(name, should string, write func(io.Writer) error) error {
	content, err := p.read(name)
	if err != nil {
		return err
	}
	c := &comparing{with: content}
	out := bufio.NewWriterSize(c, 1<<18)
	if err = errors.Join(write(out), out.Flush()); err == nil && c.at == content.Size() {
		return nil
	}
	return p.differs(err, "%s is not %s", name, should)
}

// differs is the error of a comparison that failed with err, or that ended too early without one.
func (p *Pack) differs(err error, format string, args ...any) error {
	if err == nil || errors.Is(err, errDiffers) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return p.broken(format, args...)
	}
	return err
}

// comparing takes what should be the same bytes as a file's.
type comparing struct {
	with   io.Reader
	at     int64
	buffer []byte
}

var errDiffers = errors.New("another byte")

func (c *comparing) Write(b []byte) (int, error) {
	c.buffer = slices.Grow(c.buffer[:0], len(b))[:len(b)]
	if _, err := io.ReadFull(c.with, c.buffer); err != nil {
		return 0, err
	}
	c.at += int64(len(b))
	if !bytes.Equal(c.buffer, b) {
		return 0, errDiffers
	}
	return len(b), nil
}
