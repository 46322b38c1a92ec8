package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "drun/starlib/data/table/columns"
)

// A description of a file of columns has those that cannot be read, too.
func TestDescribeColumns(t *testing.T) {
	for path, want := range map[string]string{
		"table/columns/testdata/odd.arrow": `{"file":"table/columns/testdata/odd.arrow","format":"arrow","bytes":1610,"rows":2,"columns":[{"name":"x","type":"float64","missing":0},` +
			`{"name":"gap","type":"month_day_nano_interval, not supported","missing":0},{"name":"either","type":"sparse_union\u003c0: type=int64, nullable=0, 1: type=utf8, nullable=1\u003e, not supported","missing":0},` +
			`{"name":"ends","type":"run_end_encoded\u003crun_ends: int32, values: int64\u003e, not supported","missing":0}],"tensors":[],"first":[[1,null,null,null],[2,null,null,null]]}`,
		"testdata/people.parquet": `{"file":"testdata/people.parquet","format":"parquet","bytes":2154,"rows":3,"columns":[{"name":"name","type":"text","missing":0},{"name":"age","type":"int64","missing":1},` +
			`{"name":"city","type":"text","missing":0},{"name":"height","type":"float64","missing":1},{"name":"taken","type":"int64","missing":0,"time":"TIMESTAMP(isAdjustedToUTC=false,unit=MILLIS)"},{"name":"marks","type":"any","missing":0},{"name":"member","type":"bool","missing":0}],` +
			`"tensors":[],"first":[["Ann",31,"Rome",1.5,1709208000000000,"[1, 2]",true],["Bob",null,"Oslo",1.75,1709208000000000,"[]",false],["Cid",29,"Rome",null,1709208000000000,"[3]",true]]}`,
	} {
		d, err := Describe(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := json.Marshal(d); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, got, want)
		}
	}
}

// Whatever a file of whatever name holds, drun data describes it or gives an error that names it.
func FuzzDescribe(f *testing.F) {
	for end, file := range map[string]string{"parquet": "testdata/people.parquet", "feather": "testdata/people.feather", "csv": "testdata/people.csv", "csv.zst": "testdata/people.csv.zst", "npz": "testdata/types.npz", "npy": "testdata/rows.npy", "jsonl.gz": "testdata/rows.jsonl.gz"} {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(end, content)
	}
	f.Add("idx3-ubyte", []byte("\x00\x00\x08\x03\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01x"))
	f.Add("tar", make([]byte, 1024))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, end string, content []byte) {
		if strings.ContainsAny(end, "/\x00") || len(end) > 50 {
			return
		}
		path := filepath.Join(dir, "f."+end)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return
		}
		defer os.Remove(path)
		d, err := Describe(path)
		if err != nil {
			if !strings.Contains(err.Error(), "f."+end) {
				t.Errorf("%q: %v", end, err)
			}
			return
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("%q: %v", end, err)
		}
	})
}

// INT96 has no annotation, and is used for times alone.
func TestDescribeINT96(t *testing.T) {
	d, err := Describe("table/columns/testdata/int96.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Columns {
		if c.Name == "seconds" && c.Time == "" || c.Name == "i64" && c.Time != "" {
			t.Errorf("%+v", c)
		}
	}
}
