package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
)

// The files of a run lie beside the history: those that its recipe wrote (checkpoint.save_file), and what MLflow's clients have kept of it and
// of its models. What has arrived of one, before it is whole, is a file in the folder incoming, by its SHA-256.

const incoming = "incoming"

// File is a file of a run: outputs/NAME, artifacts/NAME, or models/ID/NAME.
type File struct {
	Name   string
	Bytes  int64
	SHA256 string // "": not asked for
}

// FilesOf asks for the files of a run.
type FilesOf struct {
	UID  string
	Sums bool // with their SHA-256
}

// FilePart is a part of a file of a run.
type FilePart struct {
	UID  string
	File File
	At   int64 // where it begins; -1: nothing is sent
	Data []byte
}

func (h *Home) outputs(id int64) string {
	return filepath.Join(h.path, "outputs", strconv.FormatInt(id, 10))
}

// place is a folder of a store.
type place struct {
	objects.Store
	folder string
}

// places are where the files of a run are, by the beginnings of their names.
func (h *Home) places(ctx context.Context, role access.Role, uid string) map[string]place {
	run := try.To(h.may(ctx, role, uid))
	all := map[string]place{"outputs": {&objects.Folder{Path: h.outputs(run.ID)}, ""}}
	if h.Objects != nil {
		all["outputs"] = place{h.Kept, "outputs/" + uid}
		if role == access.Write { // the folder tells that there are some
			try.Ok(os.MkdirAll(h.outputs(run.ID), sqldb.FolderMode))
		}
	}
	for name, folder := range try.To(h.db.ToolFolders(uid)) {
		all[name] = place{h.Kept, folder}
	}
	return all
}

func (h *Home) files(ctx context.Context, of FilesOf) (list []File, err error) {
	for name, p := range h.places(ctx, access.Read, of.UID) {
		var walk func(folder, name string)
		walk = func(folder, name string) {
			for _, i := range try.To(p.List(ctx, folder)) {
				file := File{Name: name + "/" + i.Name, Bytes: i.Size}
				switch at := path.Join(folder, i.Name); {
				case strings.HasPrefix(i.Name, "."): // of a write that goes on
				case i.Dir:
					walk(at, file.Name)
				default:
					if of.Sums {
						content, _ := try.To2(p.Get(ctx, at))
						file.SHA256 = sumOf(content)
						content.Close()
					}
					list = append(list, file)
				}
			}
		}
		walk(p.folder, name)
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func sumOf(content io.Reader) string {
	sum := sha256.New()
	try.To(io.Copy(sum, content))
	return hex.EncodeToString(sum.Sum(nil))
}

// locate finds the place of a file, and its name there.
func (h *Home) locate(ctx context.Context, role access.Role, p *FilePart) (place, string) {
	for name, at := range h.places(ctx, role, p.UID) {
		if below, is := strings.CutPrefix(p.File.Name, name+"/"); is {
			name := strings.TrimPrefix(at.folder+"/"+below, "/")
			try.Ok(objects.CheckName(name))
			return at, name
		}
	}
	try.Fail("the run has no place for the file %.100q", p.File.Name)
	return place{}, ""
}

func (h *Home) readFile(ctx context.Context, p FilePart) (_ []byte, err error) {
	at, name := h.locate(ctx, access.Read, &p)
	content, _ := try.To2(at.Get(ctx, name))
	defer content.Close()
	try.To(content.Seek(p.At, io.SeekStart))
	return io.ReadAll(io.LimitReader(content, mostAnswered))
}

func (h *Home) putFile(ctx context.Context, p FilePart) (have int64, err error) {
	at, name := h.locate(ctx, access.Write, &p)
	sum, err := hex.DecodeString(p.File.SHA256)
	try.FailIf(err != nil || len(sum) != sha256.Size || p.File.Bytes < 0, "%.100q is no SHA-256 of a file", p.File.SHA256)
	h.arriving.Lock()
	defer h.arriving.Unlock()
	defer func() { err = sqldb.Wrap(h.path, err) }()
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(filepath.Join(h.path, incoming), sqldb.FolderMode))
	part := try.To(os.OpenFile(filepath.Join(h.path, incoming, hex.EncodeToString(sum)), os.O_CREATE|os.O_RDWR|os.O_APPEND, sqldb.FileMode))
	defer part.Close()
	if have = try.To(part.Stat()).Size(); have != p.At {
		return have, nil
	}
	have += int64(try.To(part.Write(p.Data)))
	if have < p.File.Bytes {
		return have, nil
	}
	defer os.Remove(part.Name())
	try.To(part.Seek(0, io.SeekStart))
	try.FailIf(have > p.File.Bytes || sumOf(part) != p.File.SHA256, "the file %s does not have its SHA-256", p.File.Name)
	try.To(part.Seek(0, io.SeekStart))
	try.Ok(at.Put(ctx, name, part, have))
	access.Of(ctx).Log(access.Event{Action: "file", UID: p.UID, What: p.File.Name})
	return have, nil
}

// copyFiles copies the files of a run that the receiver lacks, and returns the bytes that were sent, and those that it had. Without
// sums, a file of the same name and size counts as the same.
func copyFiles(ctx context.Context, from, to Side, uid string, sums bool) (sent, there int64, err error) {
	defer try.Caught(&err)
	list := try.To(Files(ctx, from, FilesOf{uid, sums}))
	if len(list) == 0 {
		return 0, 0, nil
	}
	known := try.To(Files(ctx, to, FilesOf{uid, sums}))
	lacking := slices.DeleteFunc(slices.Clone(list), func(f File) bool { return slices.Contains(known, f) })
	if len(lacking) > 0 && !sums {
		return copyFiles(ctx, from, to, uid, true)
	}
	for _, f := range list {
		there += f.Bytes
	}
	for _, f := range lacking {
		there -= f.Bytes
		for have, whole := try.To(PutFile(ctx, to, FilePart{uid, f, -1, nil})), false; !whole; {
			data := try.To(ReadFile(ctx, from, FilePart{uid, f, have, nil}))
			now := try.To(PutFile(ctx, to, FilePart{uid, f, have, data}))
			if sent += int64(len(data)); now == have && len(data) == 0 && f.Bytes > 0 {
				return sent, there, fmt.Errorf("the file %s has changed on the way", f.Name)
			}
			have, whole = now, now == f.Bytes
		}
	}
	return sent, there, nil
}
