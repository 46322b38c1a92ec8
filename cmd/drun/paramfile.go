package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"drun/engine"
	"drun/history/records"
)

const maxParamFile = 1 << 20 // bytes

// readParams reads the parameters of a JSON or TOML file, by its name's ending.
func readParams(name string) ([]engine.Param, error) {
	fault := func(err error) error {
		return usage(`for example {"lr": 0.1, "widths": [64, 64]} as FILE.json, or lr = 0.1 as FILE.toml`, "--params %s: %v", name, err)
	}
	content, err := readSmall(name)
	if err != nil {
		return nil, fault(err)
	}
	values := map[string]any{}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		values, err = decodeParams(content)
	case ".toml":
		_, err = toml.Decode(string(content), &values)
	default:
		err = errors.New("the file's name ends in neither .json nor .toml")
	}
	if err != nil {
		return nil, fault(err)
	}
	var out []engine.Param
	for _, key := range slices.Sorted(maps.Keys(values)) {
		p := engine.Param{Name: key, File: name}
		if p.Kind, p.Value, err = paramOf(values[key]); err != nil {
			return nil, fault(fmt.Errorf("%s: %w", key, err))
		}
		out = append(out, p)
	}
	return out, nil
}

func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return nil, p.Err
	}
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxParamFile:
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxParamFile)
	}
	content, err := os.ReadFile(name)
	if err == nil && !utf8.Valid(content) {
		err = errors.New("it is not UTF-8")
	}
	return bytes.TrimPrefix(content, []byte("\ufeff")), err
}

// decodeParams decodes one JSON object. A duplicate name is an error, where encoding/json takes the last.
func decodeParams(content []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	fault := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		at := content[:min(int(decoder.InputOffset()), len(content))]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(at, []byte("\n")), err)
	}
	if start, err := decoder.Token(); err != nil {
		return nil, fault(err)
	} else if start != json.Delim('{') {
		return nil, errors.New("want an object of parameters")
	}
	values := map[string]any{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, fault(err)
		}
		name := key.(string) // the decoder allows no other key
		if _, twice := values[name]; twice {
			return nil, fault(fmt.Errorf("%s is there twice", name))
		}
		var v any
		if err := decoder.Decode(&v); err != nil {
			return nil, fault(err)
		}
		values[name] = v
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fault(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fault(errors.New("something follows the object"))
	}
	return values, nil
}

// paramOf returns a value's type and its text as -p reads it.
func paramOf(v any) (kind, text string, err error) {
	switch v := v.(type) {
	case nil:
		return "NoneType", "None", nil
	case bool:
		return "bool", strconv.FormatBool(v), nil
	case string:
		return "string", v, nil
	case int64:
		return "int", strconv.FormatInt(v, 10), nil
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return "float", text, nil
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return "int", v.String(), nil
		}
		if _, err := v.Float64(); err != nil {
			return "", "", fmt.Errorf("%s is too large for a float", v)
		}
		return "float", v.String(), nil
	case []any:
		text, err = listOf(v, 1)
		return "list", text, err
	case []map[string]any, map[string]any:
		return "", "", errors.New("a table is no parameter: want a number, text, bool or list")
	}
	return "", "", fmt.Errorf("%v is no parameter: want a number, text, bool or list", v)
}

const maxListDepth = 16

func listOf(list []any, depth int) (string, error) {
	if depth > maxListDepth {
		return "", fmt.Errorf("lists are nested deeper than %d", maxListDepth)
	}
	elements := make([]string, len(list))
	for i, v := range list {
		var err error
		switch v := v.(type) {
		case []any:
			elements[i], err = listOf(v, depth+1)
		case string:
			var text []byte
			text, err = records.Marshal(v)
			elements[i] = string(text)
		default:
			_, elements[i], err = paramOf(v)
		}
		if err != nil {
			return "", fmt.Errorf("element %d: %w", i, err)
		}
	}
	return "[" + strings.Join(elements, ",") + "]", nil
}
