package host

import (
	"encoding/json"
	"os"
	"path/filepath"

	"drun/internal/try"
)

// KnownFile keeps what plugins said of themselves, in the history's folder, so that they are not started again only to be
// asked. Nothing else depends on it: it may be lost, and a plugin that is used is verified as ever.
const KnownFile = "plugins.known"

// said is what a plugin answered, and the marks of the programs that asked and answered.
type said struct {
	Asker, Mark string
	Properties  json.RawMessage
}

// Known fills in the properties that the plugin gave to the program at a path, which is Program, if neither has changed.
func Known(home, program string, p *Plugin, properties any) bool {
	known, now := readKnown(home)[p.Path], saidNow(program, p)
	return now.readable() && known.Asker == now.Asker && known.Mark == now.Mark && json.Unmarshal(known.Properties, properties) == nil
}

// Remember keeps a plugin's properties for Known. Its checksum was taken before it was asked.
func Remember(home, program string, p *Plugin, properties any) (err error) {
	defer try.Caught(&err)
	now := saidNow(program, p)
	now.Properties = try.To(json.Marshal(properties))
	if !now.readable() || now.Mark != p.Mark {
		return nil // it has changed meanwhile
	}
	try.Ok(os.MkdirAll(home, 0o700))
	all := readKnown(home)
	all[p.Path] = now
	file := try.To(os.CreateTemp(home, KnownFile+"-"))
	defer os.Remove(file.Name())
	defer file.Close()
	try.To(file.Write(try.To(json.Marshal(all))))
	return os.Rename(file.Name(), filepath.Join(home, KnownFile))
}

// saidNow has the marks of both programs; "" for one that cannot be read.
func saidNow(program string, p *Plugin) said {
	of := func(path string) string {
		f, err := os.Open(path)
		if err != nil {
			return ""
		}
		defer f.Close()
		m, _ := mark(f)
		return m
	}
	return said{Asker: of(program), Mark: of(p.Path)}
}

func (s said) readable() bool { return s.Asker != "" && s.Mark != "" }

func readKnown(home string) map[string]said {
	all := map[string]said{}
	if data, err := os.ReadFile(filepath.Join(home, KnownFile)); err == nil && json.Unmarshal(data, &all) != nil {
		clear(all)
	}
	return all
}
