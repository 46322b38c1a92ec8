package mlflow

import (
	"context"
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

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/try"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
)

// An artifact's name in the store begins with the experiment's id, as in MLflow: 3/UID/artifacts/… is of a run, and
// 3/models/ID/artifacts/… of a model. What a run of drun has kept is shown beside it, and can only be read.

// owned finds out whose the file or the folder is, and whether the user has a role there. of is the run, nil if it is a model's;
// rest the path in its folder.
func (c *call) owned(name string, role access.Role) (of *run, rest string) {
	if err := objects.CheckName(name); err != nil {
		try.Ok(invalid("Invalid path: %v", err))
	}
	part := strings.Split(name, "/")
	experiment := ""
	switch {
	case len(part) >= 3 && part[2] == "artifacts" && part[1] != "models":
		of = c.runOf(c.reader(), part[1], role)
		if role != access.Read {
			of.logged()
		}
		experiment, rest = strconv.FormatInt(of.experiment, 10), path.Join(part[3:]...)
	case len(part) >= 4 && part[1] == "models" && part[3] == "artifacts":
		m := c.modelOf(c.reader(), part[2], role)
		experiment, rest = strconv.FormatInt(m.experiment, 10), path.Join(part[4:]...)
	}
	if part[0] != experiment {
		try.Ok(invalid("Invalid path: %.200q is none of a run's or a model's artifacts: want EXPERIMENT/RUN/artifacts/… or EXPERIMENT/models/MODEL/artifacts/…", name))
	}
	return of, rest
}

// failed makes what a store says an error of MLflow's.
func failed(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		err = missing("No such artifact: %.500s", name)
	}
	try.Ok(err)
}

func getArtifact(c *call) any {
	name := c.r.PathValue("path")
	of, rest := c.owned(name, access.Read)
	if of != nil && !of.foreign {
		if kept, is := c.kept(of)[rest]; is {
			c.send(rest, int64(len(kept.content())), strings.NewReader(kept.content()))
			return nil
		}
	}
	content, size, err := c.files.Get(c.r.Context(), name)
	failed(name, err)
	defer content.Close()
	c.send(name, size, content)
	return nil
}

// within limits how long an artifact may take.
const within = time.Hour

func (c *call) send(name string, size int64, content io.Reader) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(within))
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	if n, err := io.Copy(c.w, content); err != nil || n != size {
		panic(http.ErrAbortHandler) // the client must not take it for the whole
	}
}

func putArtifact(c *call) any {
	name := c.r.PathValue("path")
	_, rest := c.owned(name, access.Write)
	if rest == "" {
		try.Ok(invalid("Invalid path: %.200q is a folder", name))
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(within))
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(within + time.Minute))
	failed(name, c.files.Put(c.r.Context(), name, c.r.Body, c.r.ContentLength))
	c.user.Log(access.Event{Action: "artifact", What: name})
	return nothing{}
}

func deleteArtifact(c *call) any {
	name := c.r.PathValue("path")
	c.owned(name, access.Write)
	failed(name, c.files.Remove(c.r.Context(), name))
	c.user.Log(access.Event{Action: "remove artifact", What: name})
	return nothing{}
}

type fileInfo struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size int64  `json:"file_size,omitempty"`
}

type filesAnswer struct {
	Root  string     `json:"root_uri,omitempty"`
	Files []fileInfo `json:"files"`
}

// list lists a folder of the store, and what a run of drun has kept.
func (c *call) list(name, before string) []fileInfo {
	of, rest := c.owned(name, access.Read)
	found := try.To(c.files.List(c.r.Context(), name))
	files := each.Of(found, func(i objects.Info) fileInfo { return fileInfo{path.Join(before, i.Name), i.Dir, i.Size} })
	if of == nil || of.foreign {
		return files
	}
	for name, kept := range c.kept(of) {
		below, is := strings.CutPrefix("/"+name, path.Join("/", rest)+"/")
		if rest == "" {
			below, is = name, true
		}
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

// keptArtifact is something that a recipe has kept.
type keptArtifact struct {
	records.Artifact
	content func() string
}

// extensions of kinds.
var extensions = map[string]string{"text": ".txt", "tensor": ".npy", "image": ".png", "histogram": ".json", "table": ".json"}

// kept are what a run of drun has kept, by paths: NAME.png, or NAME/step-7.png.
func (c *call) kept(r *run) map[string]keptArtifact {
	db := c.read
	all := map[string]keptArtifact{}
	for _, a := range try.To(db.Artifacts(r.id)) {
		name := a.Name
		if a.Step != nil {
			name += fmt.Sprintf("/step-%d", *a.Step)
		}
		if name += extensions[a.Kind]; objects.CheckName(name) != nil {
			name = a.SHA256 + extensions[a.Kind]
		}
		all[name] = keptArtifact{a, func() string { return string(try.To(db.Content(&a))) }}
	}
	return all
}

// listArtifacts lists a folder of the store, with paths beneath it.
func listArtifacts(c *call, in *struct {
	Path string `json:"path"`
}) any {
	return filesAnswer{Files: c.list(strings.Trim(in.Path, "/"), "")}
}

// folder is the place of a path in an owner's folder, which is in this server's store only if its experiment does not say otherwise.
func (c *call) folder(root, below string) string {
	name, is := strings.CutPrefix(root, "mlflow-artifacts:/")
	if !is {
		try.Ok(errorf("NOT_IMPLEMENTED", "the artifacts are in %s, not with this server", root))
	}
	return strings.Trim(name+"/"+below, "/")
}

func listRunArtifacts(c *call, in *struct {
	ID   string `json:"run_id"`
	UUID string `json:"run_uuid"`
	Path string `json:"path"`
}) any {
	r := c.runOf(c.reader(), either(in.ID, in.UUID), access.Read)
	return filesAnswer{r.root(), c.list(c.folder(r.root(), in.Path), in.Path)}
}

func listModelArtifacts(c *call, in *struct {
	ID   string `json:"model_id" need:""`
	Path string `json:"artifact_directory_path"`
}) any {
	m := c.modelOf(c.reader(), in.ID, access.Read)
	return filesAnswer{m.root(), c.list(c.folder(m.root(), in.Path), in.Path)}
}

// Sweep removes the artifacts of runs and models that are gone for good.
func (h *Handler) Sweep(ctx context.Context) (err error) {
	defer try.Caught(&err)
	folders := func(name string) (list []string) {
		for _, f := range try.To(h.files.List(ctx, name)) {
			if f.Dir {
				list = append(list, path.Join(name, f.Name))
			}
		}
		return list
	}
	known := func(query, name string) bool {
		return one(h.read.Reader(), []any{new(int)}, query, path.Base(name))
	}
	for _, experiment := range folders("") {
		for _, name := range folders(experiment) {
			if path.Base(name) == "models" {
				for _, model := range folders(name) {
					if !known("SELECT 1 FROM mlflow_models WHERE id = ?", model) {
						try.Ok(h.files.Remove(ctx, model))
					}
				}
			} else if !known("SELECT 1 FROM runs WHERE uid = ?", name) {
				try.Ok(h.files.Remove(ctx, name))
			}
		}
	}
	return nil
}
