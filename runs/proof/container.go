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
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	to := try.To(a.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: epoch}))
	sum := newSummed(to)
	out := bufio.NewWriterSize(sum, 1<<20)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	m := member{name: name, sum: sum.end()}
	try.Ok(err)
	a.members = append(a.members, m)
	return nil
}

// end writes what the members are committed with, and the signature that sign makes of the root; nil: none.
func (a *archive) end(sign func(root string) ([]byte, error)) (root string, err error) {
	defer try.Caught(&err)
	var manifest strings.Builder
	for _, m := range a.members {
		manifest.WriteString(m.line())
	}
	sum := rootOf(a.members)
	root = hex.EncodeToString(sum[:])
	try.Ok(a.add(manifestName, func(w io.Writer) error { _, err := io.WriteString(w, manifest.String()); return err }))
	try.Ok(a.add(rootName, func(w io.Writer) error { _, err := io.WriteString(w, root+"\n"); return err }))
	if sign != nil {
		signature := try.To(sign(root))
		try.Ok(a.add(signatureName, func(w io.Writer) error { _, err := w.Write(signature); return err }))
	}
	return root, a.zip.Close()
}

// summed passes on what is written, and computes its SHA-256 meanwhile on another core.
type summed struct {
	to    io.Writer
	parts chan []byte
	free  chan []byte
	sum   chan [sha256.Size]byte
}

func newSummed(to io.Writer) *summed {
	s := &summed{to, make(chan []byte, 4), make(chan []byte, 8), make(chan [sha256.Size]byte, 1)}
	go func() {
		sum := sha256.New()
		for part := range s.parts {
			sum.Write(part)
			select {
			case s.free <- part:
			default:
			}
		}
		s.sum <- [sha256.Size]byte(sum.Sum(nil))
	}()
	return s
}

func (s *summed) Write(p []byte) (int, error) {
	var buffer []byte
	select {
	case buffer = <-s.free:
	default:
	}
	s.parts <- append(buffer[:0], p...) // the caller reuses p
	return s.to.Write(p)
}

func (s *summed) end() [sha256.Size]byte {
	close(s.parts)
	return <-s.sum
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
	names   []string          // of the members that are committed to, in order
	sums    map[string]string // their SHA-256
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
	info, err := file.Stat()
	start := make([]byte, 4)
	_, rerr := io.ReadFull(file, start)
	return err == nil && rerr == nil && info.Mode().IsRegular() && string(start) == "PK\x03\x04"
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
	info := try.To(file.Stat())
	if !info.Mode().IsRegular() || !IsPack(path) {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s is not a pack", path), "drun pack RUN makes one")
	}
	p.Bytes = info.Size()
	in, err := zip.NewReader(file, p.Bytes)
	if err != nil {
		return nil, p.broken("it cannot be read as a zip archive (%v)", err)
	}
	try.Ok(p.checkNames(in.File))
	try.Ok(p.checkBytes(in.File))
	if sum := p.signed; sum != nil {
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

// checkNames refuses members that a pack does not have, before anything is read.
func (p *Pack) checkNames(files []*zip.File) error {
	ends := []string{manifestName, rootName}
	if n := len(files); n > 0 && files[n-1].Name == signatureName {
		ends = append(ends, signatureName)
	}
	if len(files) < len(ends)+2 {
		return p.broken("members are missing")
	}
	for i, f := range files {
		switch at := i - (len(files) - len(ends)); {
		case at >= 0 && f.Name != ends[at]:
			return p.broken("its member %q should be %s", f.Name, ends[at])
		case at < 0 && !validName(f.Name):
			return p.broken("it has a member %q", f.Name)
		case at < 0 && i > 0 && files[i-1].Name >= f.Name:
			return p.broken("its member %q is not in order", f.Name)
		case f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.UncompressedSize64 > uint64(p.Bytes):
			return p.broken("its member %q has an impossible size", f.Name)
		case at >= 0 && f.UncompressedSize64 > 64<<20:
			return p.broken("its %s is too large", f.Name)
		}
		p.members[f.Name] = f
	}
	for _, name := range []string{"README.txt", chainName, historyName, logsName, metricsName, runName} {
		if p.members[name] == nil {
			return p.broken("%s is missing", name)
		}
	}
	return nil
}

// checkBytes writes the pack again from its members, and compares.
func (p *Pack) checkBytes(files []*zip.File) (err error) {
	defer try.Caught(&err)
	same := &comparing{with: bufio.NewReaderSize(io.NewSectionReader(p.file, 0, p.Bytes), 1<<20)}
	again := newArchive(same)
	var manifest, root bytes.Buffer
	for _, f := range files {
		content := try.To(p.raw(f))
		err := again.add(f.Name, func(w io.Writer) error {
			switch f.Name {
			case manifestName:
				w = io.MultiWriter(w, &manifest)
			case rootName:
				w = io.MultiWriter(w, &root)
			}
			_, err := io.Copy(w, content)
			return err
		})
		if err != nil {
			return p.differs(err, f.Name)
		}
	}
	if err := again.zip.Close(); err != nil || same.at != p.Bytes {
		return p.differs(cmp.Or(err, errDiffers), "its directory")
	}
	ends := again.members[:len(files)]
	if ends[len(ends)-1].name == signatureName {
		ends = ends[:len(ends)-1]
	}
	committed := ends[:len(ends)-2]
	lines := strings.SplitAfter(manifest.String(), "\n")
	for i, m := range committed {
		p.names = append(p.names, m.name)
		p.sums[m.name] = hex.EncodeToString(m.sum[:])
		if i >= len(lines) || lines[i] != m.line() {
			return p.broken("%s does not have the SHA-256 that %s says", m.name, manifestName)
		}
	}
	if len(lines) != len(committed)+1 || lines[len(committed)] != "" {
		return p.broken("%s does not list its members", manifestName)
	}
	sum := rootOf(committed)
	p.Root = hex.EncodeToString(sum[:])
	if root.String() != p.Root+"\n" {
		return p.broken("%s is not the root of what %s lists", rootName, manifestName)
	}
	if f := p.members[signatureName]; f != nil {
		p.signed = try.To(io.ReadAll(try.To(p.raw(f))))
	}
	return nil
}

func (p *Pack) differs(err error, where string) error {
	if errors.Is(err, errDiffers) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return p.broken("%s was changed", where)
	}
	return err
}

// raw is the content of a member as it lies in the file.
func (p *Pack) raw(f *zip.File) (io.Reader, error) {
	content, err := f.OpenRaw()
	if err != nil {
		return nil, p.broken("%s cannot be read (%v)", f.Name, err)
	}
	return content, nil
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

// comparing takes what should be the same bytes as a file's.
type comparing struct {
	with   io.Reader
	at     int64
	buffer []byte
}

var errDiffers = errors.New("another byte")

func (c *comparing) Write(b []byte) (int, error) {
	if cap(c.buffer) < len(b) {
		c.buffer = make([]byte, len(b))
	}
	if _, err := io.ReadFull(c.with, c.buffer[:len(b)]); err != nil {
		return 0, err
	}
	c.at += int64(len(b))
	if !bytes.Equal(c.buffer[:len(b)], b) {
		return 0, errDiffers
	}
	return len(b), nil
}
