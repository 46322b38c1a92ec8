package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/md5" // Debian's packages list it
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"drun/internal/try"
)

// file is one to pack.
type file struct {
	name    string // beneath the folder in which programs are installed, such as /usr
	path    string // where it is, or
	content string // what is in it
	mode    os.FileMode
}

func (f file) open() (io.ReadCloser, int64, error) {
	if f.path == "" {
		return io.NopCloser(strings.NewReader(f.content)), int64(len(f.content)), nil
	}
	in, err := os.Open(f.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := in.Stat()
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return in, info.Size(), nil
}

// into copies the file, and returns its size.
func (f file) into(out io.Writer) (int64, error) {
	in, _, err := f.open()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return io.Copy(out, in)
}

func (f file) digest(h hash.Hash) ([]byte, error) {
	_, err := f.into(h)
	return h.Sum(nil), err
}

func (f file) sum() ([]byte, error) { return f.digest(sha256.New()) }

// packed writes a file, which is removed again if that fails.
func packed(path string, write func(out io.Writer)) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer try.CaughtOr(&err, func() { os.Remove(path) })
	defer out.Close()
	write(out)
	return out.Close()
}

// tarball writes files beneath a folder, as root's, with the folders that they are in.
func (b build) tarball(out io.Writer, folder string, files []file) {
	zipped := try.To(gzip.NewWriterLevel(out, gzip.BestCompression))
	w := tar.NewWriter(zipped)
	made := map[string]bool{".": true}
	var dirs func(dir string)
	dirs = func(dir string) {
		if made[dir] {
			return
		}
		dirs(path.Dir(dir))
		made[dir] = true
		try.Ok(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: b.made}))
	}
	for _, f := range files {
		name := path.Join(folder, f.name)
		dirs(path.Dir(name))
		in, size := try.To2(f.open())
		try.Ok(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: size, ModTime: b.made}))
		_, err := io.Copy(w, in)
		in.Close()
		try.Ok(err)
	}
	try.Ok(w.Close())
	try.Ok(zipped.Close())
}

func packArchive(b build, files []file) error {
	name := fmt.Sprintf("drun-%s-linux-%s", b.version, b.arch)
	return packed(filepath.Join(b.out, name+".tar.gz"), func(out io.Writer) { b.tarball(out, name, files) })
}

// packDebian makes a Debian package: an ar archive of two tar archives, of what dpkg knows and of the files.
func packDebian(b build, files []file) error {
	version := strings.Replace(b.version, ".dev", "~dev", 1) // before the version itself
	return packed(filepath.Join(b.out, fmt.Sprintf("drun_%s_%s.deb", version, b.arch)), func(out io.Writer) {
		var control, data bytes.Buffer
		var sums strings.Builder
		size := int64(0)
		files = slices.Clone(files)
		for i := range files {
			f := &files[i]
			if f.name = "usr/" + f.name; path.Base(f.name) == "LICENSE" {
				f.name = path.Dir(f.name) + "/copyright" // Debian's name
			}
			h := md5.New()
			size += try.To(f.into(h))
			fmt.Fprintf(&sums, "%x  %s\n", h.Sum(nil), f.name)
		}
		b.tarball(&control, ".", []file{
			{name: "control", mode: 0o644, content: fmt.Sprintf(`Package: drun
Version: %s
Architecture: %s
Maintainer: The authors of drun <drun@localhost>
Installed-Size: %d
Depends: libc6 (>= %s)
Section: science
Priority: optional
Description: %s
 Recipes in Starlark train models on one machine or several; parameters,
 metrics, logs and checkpoints are kept in SQLite.
`, version, b.arch, (size+1023)/1024, glibc, summary)},
			{name: "md5sums", mode: 0o644, content: sums.String()},
		})
		b.tarball(&data, ".", files)
		try.To(io.WriteString(out, "!<arch>\n"))
		for _, member := range []struct{ name, content string }{
			{"debian-binary", "2.0\n"}, {"control.tar.gz", control.String()}, {"data.tar.gz", data.String()},
		} {
			try.To(fmt.Fprintf(out, "%-16s%-12d0     0     100644  %-10d`\n%s", member.name, b.made.Unix(), len(member.content), member.content))
			if len(member.content)%2 == 1 {
				try.To(io.WriteString(out, "\n"))
			}
		}
	})
}

const summary = "Runs machine-learning experiments; same recipe, same bits"

// packWheel makes a wheel, whose programs pip installs beside Python, with the module drun.
func packWheel(b build, files []file) error {
	tag := fmt.Sprintf("py3-none-manylinux_%s_%s", strings.ReplaceAll(glibc, ".", "_"), b.machine)
	data, info := fmt.Sprintf("drun-%s.data/", b.version), fmt.Sprintf("drun-%s.dist-info/", b.version)
	return packed(filepath.Join(b.out, fmt.Sprintf("drun-%s-%s.whl", b.version, tag)), func(out io.Writer) {
		members := []file{{name: "drun.py", path: "tools/dist/python/drun.py", mode: 0o644}}
		for _, f := range files {
			switch dir, name := path.Split(f.name); {
			case dir == "bin/":
				f.name = data + "scripts/" + name
			case name == "README.md" && dir == "share/doc/drun/": // it is in METADATA
				continue
			case name == sbomName:
				f.name = info + "sboms/" + name
			case dir == "share/doc/drun/":
				f.name = info + "licenses/" + name
			default:
				f.name = data + "data/" + f.name
			}
			members = append(members, f)
		}
		readme := try.To(os.ReadFile("README.md"))
		members = append(members,
			file{name: info + "METADATA", mode: 0o644, content: fmt.Sprintf(`Metadata-Version: 2.4
Name: drun
Version: %s
Summary: %s
License-Expression: Apache-2.0
License-File: LICENSE
License-File: %s
Requires-Python: >=3.9
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
Requires-Dist: pyarrow; extra == "pandas"
Provides-Extra: polars
Requires-Dist: polars; extra == "polars"
Description-Content-Type: text/markdown

%s`, b.version, summary, licencesName, readme)},
			file{name: info + "WHEEL", mode: 0o644, content: "Wheel-Version: 1.0\nGenerator: drun\nRoot-Is-Purelib: false\nTag: " + tag + "\n"})
		w := zip.NewWriter(out)
		var record strings.Builder
		add := func(f file) {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: b.made}
			header.SetMode(f.mode)
			h := sha256.New()
			size := try.To(f.into(io.MultiWriter(try.To(w.CreateHeader(header)), h)))
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(h.Sum(nil)), size)
		}
		slices.SortStableFunc(members, func(a, b file) int { return cmp.Compare(strings.Count(a.name, info), strings.Count(b.name, info)) })
		for _, f := range members {
			add(f)
		}
		name := info + "RECORD"
		add(file{name: name, mode: 0o644, content: record.String() + name + ",,\n"})
		try.Ok(w.Close())
	})
}
