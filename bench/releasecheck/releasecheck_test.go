package main

import (
	"archive/zip"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
)

func goMods(t *testing.T, texts map[string]string) map[string]*modfile.File {
	files := map[string]*modfile.File{}
	for dir, text := range texts {
		f, err := modfile.Parse("go.mod", []byte(text), nil)
		require.NoError(t, err)
		files[dir] = f
	}
	return files
}

func TestRequiredVersions_mustAgree(t *testing.T) {
	mods := map[string]string{
		".": "module example.org/h",
		"a": "module example.org/h/a\nrequire example.org/h v0.1.0",
		"b": "module example.org/h/b\nrequire (\nexample.org/h v0.1.0\nexample.org/h/a v0.2.0\nexample.org/hh v1.0.0\n)",
	}
	got, err := requiredVersions(goMods(t, mods))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"example.org/h": "v0.1.0", "example.org/h/a": "v0.2.0"}, got)

	mods["a"] = "module example.org/h/a\nrequire example.org/h v0.1.1"
	_, err = requiredVersions(goMods(t, mods))
	require.ErrorContains(t, err, "example.org/h v0.1")
}

func TestInspect_findsWhatMustNotBePublished(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]int // sizes
		err   string
	}{
		"valid":        {map[string]int{"go.mod": 1, "LICENSE": 1, "testdata/a": maxTestdata}, ""},
		"no license":   {map[string]int{"go.mod": 1, "a/LICENSE": 1}, "no LICENSE"},
		"nested":       {map[string]int{"LICENSE": 1, "a/go.mod": 1}, "nested module"},
		"large":        {map[string]int{"LICENSE": 1, "testdata/a": maxTestdata, "b/testdata/a": 1024}, "4097 KiB"},
		"node modules": {map[string]int{"LICENSE": 1, "testdata/node_modules/a.js": 1}, "npm"},
	} {
		var archive bytes.Buffer
		w := zip.NewWriter(&archive)
		for file, size := range tt.files {
			f, err := w.Create("example.org/h@v0.1.0/" + file)
			require.NoError(t, err)
			_, err = f.Write(make([]byte, size))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		n, err := inspect(archive.Bytes(), "example.org/h@v0.1.0/")
		if tt.err == "" {
			require.NoError(t, err, name)
			require.Equal(t, len(tt.files), n, name)
		} else {
			require.ErrorContains(t, err, tt.err, name)
		}
	}
}

func TestLinkedModules_findsForbiddenOnes(t *testing.T) {
	mods := []releaseModule{{published: published{links: []string{"example.org/x"}}, path: "example.org/h", version: "v0.1.0"}}
	for name, tt := range map[string]struct{ list, err string }{
		"valid": {`{} {"Module":{"Path":"example.com/consumer","Main":true}} {"Module":{"Path":"example.org/h","Version":"v0.1.0"}}
			{"Module":{"Path":"example.org/x"}} {"Module":{"Path":"example.org/x"}}`, ""},
		"forbidden": {`{"Module":{"Path":"go.yaml.in/yaml/v3"}}`, "go.yaml.in/yaml/v3"},
		"version":   {`{"Module":{"Path":"example.org/h","Version":"v0.1.1"}}`, "not v0.1.0"},
		"replaced":  {`{"Module":{"Path":"example.org/h","Version":"v0.1.0","Replace":{"Path":"../"}}}`, "replacement"},
	} {
		got, err := linkedModules(tt.list, mods[0], mods)
		if tt.err == "" {
			require.NoError(t, err, name)
			require.Equal(t, []string{"example.org/x"}, got, name)
		} else {
			require.ErrorContains(t, err, tt.err, name)
		}
	}
}
