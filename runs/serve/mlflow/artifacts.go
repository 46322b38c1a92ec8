package mlflow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/try"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
)

// An artifact's name in the store begins with the experiment's id, as in MLflow: 3/UID/artifacts/… is of a run, and
// 3/models/ID/artifacts/… of a model. What a run of drun has kept is shown beside it, and can only be read.

// owner is whose a file or a folder is.
type owner struct {
	run  *run // nil: a model's
	uid  string
	rest string // the path in its folder
}

// owned finds out whose the file or the folder is, and whether the user has a role there.
func (c *call) owned(name string, role access.Role) (of owner) {
	if err := objects.CheckName(name); err != nil {
		refuse("Invalid path: %v", err)
	}
	part := strings.Split(name, "/")
	experiment := ""
	switch {
	case len(part) >= 3 && part[2] == "artifacts" && part[1] != "models":
		r := c.runOf(c.reader(), part[1], role)
		if role != access.Read {
			r.changeable(true)
		}
		experiment, of = r.Info.Experiment, owner{r, part[1], path.Join(part[3:]...)}
	case len(part) >= 4 && part[1] == "models" && part[3] == "artifacts":
		m := c.modelOf(c.reader(), part[2], role)
		experiment, of = m.Info.Experiment, owner{nil, m.Info.Run, path.Join(part[4:]...)}
	}
	if part[0] != experiment {
		refuse("Invalid path: %.200q is none of a run's or a model's artifacts: want EXPERIMENT/RUN/artifacts/… or EXPERIMENT/models/MODEL/artifacts/…", name)
	}
	return of
}

// found makes what a store says an error of MLflow's.
func found(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		missing("No such artifact: %.500s", name)
	}
	try.Ok(err)
}

func getArtifact(c *call) any {
	name := c.r.PathValue("path")
	of := c.owned(name, access.Read)
	if kept, is := c.kept(of.run)[of.rest]; is {
		content := try.To(c.read.Content(&kept))
		return c.send(of.rest, int64(len(content)), strings.NewReader(string(content)))
	}
	content, size, err := c.files.Get(c.r.Context(), name)
	found(name, err)
	defer content.Close()
	return c.send(name, size, content)
}

// within limits how long an artifact may take.
const within = time.Hour

func (c *call) send(name string, size int64, content io.Reader) any {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(within))
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	if n, err := io.Copy(c.w, content); err != nil || n != size {
		panic(http.ErrAbortHandler) // the client must not take it for the whole
	}
	return nil
}

func putArtifact(c *call) any {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(within))
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(within + time.Minute))
	return c.changeArtifact("artifact", func(name string) error { return c.files.Put(c.r.Context(), name, c.r.Body, c.r.ContentLength) })
}

func deleteArtifact(c *call) any {
	return c.changeArtifact("remove artifact", func(name string) error { return c.files.Remove(c.r.Context(), name) })
}

func (c *call) changeArtifact(action string, change func(name string) error) any {
	name := c.r.PathValue("path")
	of := c.owned(name, access.Write)
	if of.rest == "" && c.r.Method == http.MethodPut {
		refuse("Invalid path: %.200q is a folder", name)
	}
	found(name, change(name))
	c.update(func(tx *sql.Tx) { touch(tx, of.uid) })
	c.user.Log(access.Event{Action: action, What: name})
	return nothing{}
}

type fileInfo struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size int64  `json:"file_size,omitempty"`
}

// list lists a folder of the store, and what a run of drun has kept.
func (c *call) list(name, before string) []fileInfo {
	of := c.owned(name, access.Read)
	files := each.Of(try.To(c.files.List(c.r.Context(), name)), func(i objects.Info) fileInfo { return fileInfo{path.Join(before, i.Name), i.Dir, i.Size} })
	for name, kept := range c.kept(of.run) {
		below, is := strings.CutPrefix("/"+name, strings.TrimSuffix("/"+of.rest, "/")+"/")
		first, _, more := strings.Cut(below, "/")
		f := fileInfo{path.Join(before, first), more, 0}
		if !more {
			f.Size = kept.Bytes
		}
		if is && !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b fileInfo) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// extensions of kinds.
var extensions = map[string]string{"text": ".txt", "tensor": ".npy", "image": ".png", "histogram": ".json", "table": ".json"}

// kept are what a run of drun has kept, by paths: NAME.png, or NAME/step-7.png.
func (c *call) kept(r *run) map[string]records.Artifact {
	all := map[string]records.Artifact{}
	if r == nil || r.foreign {
		return all
	}
	for _, a := range try.To(c.read.Artifacts(r.id)) {
		name := a.Name
		if a.Step != nil {
			name += fmt.Sprintf("/step-%d", *a.Step)
		}
		if name += extensions[a.Kind]; objects.CheckName(name) != nil {
			name = a.SHA256 + extensions[a.Kind]
		}
		all[name] = a
	}
	return all
}

// listArtifacts lists a folder of the store, with paths beneath it.
func listArtifacts(c *call, in *struct {
	Path string `json:"path"`
}) any {
	return object{"files": c.list(strings.Trim(in.Path, "/"), "")}
}

// listIn lists a folder beneath that of a run or a model, which is in this server's store only if its experiment does not say otherwise.
func (c *call) listIn(root, below string) any {
	name, is := strings.CutPrefix(root, "mlflow-artifacts:/")
	if !is {
		fail("NOT_IMPLEMENTED", "the artifacts are in %s, not with this server", root)
	}
	return object{"root_uri": root, "files": c.list(strings.Trim(name+"/"+below, "/"), below)}
}

func listRunArtifacts(c *call, in *struct {
	ofRun
	Path string `json:"path"`
}) any {
	return c.listIn(c.runOf(c.reader(), in.ID, access.Read).Info.Root, in.Path)
}

func listModelArtifacts(c *call, in *struct {
	modelID
	Path string `json:"artifact_directory_path"`
}) any {
	return c.listIn(c.modelOf(c.reader(), in.ID, access.Read).Info.Root, in.Path)
}

// Sweep removes from a home's artifacts those of runs and models that are gone for good.
func Sweep(ctx context.Context, db *history.DB, files objects.Store) (err error) {
	defer try.Caught(&err)
	folders := func(name string) (list []string) {
		for _, f := range try.To(files.List(ctx, name)) {
			if f.Dir {
				list = append(list, path.Join(name, f.Name))
			}
		}
		return list
	}
	sweep := func(query string, names []string) {
		for _, name := range names {
			if path.Base(name) != "models" && !one(db.Reader(), []any{new(int)}, query, path.Base(name)) {
				try.Ok(files.Remove(ctx, name))
			}
		}
	}
	for _, experiment := range folders("") {
		sweep("SELECT 1 FROM runs WHERE uid = ?", folders(experiment))
		sweep("SELECT 1 FROM mlflow_models WHERE id = ?", folders(experiment+"/models"))
	}
	return nil
}
