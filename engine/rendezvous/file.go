package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// fileLook is how often a wait looks at a store that is a file.
const fileLook = 5 * time.Millisecond

// entry is a key of a store that is a file, and its value. JSON would change a string that is not UTF-8.
type entry struct{ Space, Key, Value []byte }

// File makes a store whose contents are in a file. change passes its bytes, none at first, to a function and replaces them
// with what that returns, while no other process does.
func File(change func(func(content []byte) ([]byte, error)) error) *Store {
	return &Store{do: func(ctx context.Context, q *Request) (*Reply, error) {
		for end := time.Now().Add(q.Wait); ; {
			now := *q
			now.Wait = 0
			var r *Reply
			err := change(func(content []byte) ([]byte, error) {
				table, err := load(content)
				if err != nil {
					return nil, err
				}
				r = table.Do(&now, nil)
				return table.save(content)
			})
			if err != nil || len(r.Missing) == 0 || !time.Now().Before(end) {
				return r, err
			}
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(fileLook):
			}
		}
	}}
}

func load(content []byte) (*Table, error) {
	t := NewTable()
	if len(content) == 0 {
		return t, nil
	}
	var entries []entry
	if err := json.Unmarshal(content, &entries); err != nil {
		return nil, fmt.Errorf("the file is not a store: %w", err)
	}
	for _, e := range entries {
		if err := t.put(name{string(e.Space), string(e.Key)}, e.Value); err != nil {
			return nil, err
		}
	}
	t.changed = false
	return t, nil
}

// save returns the bytes of the table that content was, or content if nothing has changed.
func (t *Table) save(content []byte) ([]byte, error) {
	if !t.changed {
		return content, nil
	}
	entries := make([]entry, 0, len(t.values))
	for at, value := range t.values {
		entries = append(entries, entry{[]byte(at.space), []byte(at.key), value})
	}
	return json.Marshal(entries)
}
