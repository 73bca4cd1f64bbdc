package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuildPrevious_findsWhatItNoLongerFits releases a module with a nested one that uses its internal package, then changes
// that, and builds the released nested module with it.
func TestBuildPrevious_findsWhatItNoLongerFits(t *testing.T) {
	const path = "github.com/heed-go/sample"
	root := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	commit := func(tags ...string) {
		commands := [][]string{{"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a"}}
		for _, tag := range tags {
			commands = append(commands, []string{"tag", tag})
		}
		for _, args := range commands {
			_, err := git(root, args...)
			require.NoError(t, err)
		}
	}
	_, err := git(root, "init", "-q")
	require.NoError(t, err)
	goMod := "module " + path + "\n\ngo 1.25.0\n"
	write("LICENSE", "free")
	write("go.mod", goMod)
	write("internal/x/x.go", "package x\n\nfunc F() {}\n")
	write("nested/go.mod", "module "+path+"/nested\n\ngo 1.25.0\n\nrequire "+path+" v1.0.0\n\nreplace "+path+" => ../\n")
	write("nested/n.go", "package nested\n\nimport \""+path+"/internal/x\"\n\nfunc N() { x.F() }\n")
	write("nested/n_test.go", "package nested\n\nimport _ \""+path+"/internal/only/in/tests\"\n")
	commit()

	nested := releaseModule{published: published{dir: "nested"}, path: path + "/nested", version: "v1.2.0"}
	build := func(version string) (string, error) {
		temp := t.TempDir()
		proxy := filepath.Join(temp, "proxy")
		rootModule := releaseModule{published: published{dir: "."}, path: path, version: version, goMod: []byte(goMod)}
		_, err := pack(root, proxy, rootModule)
		require.NoError(t, err)
		return buildPrevious(root, temp, proxy, nested, rootModule)
	}
	said, err := build("v1.2.0")
	require.NoError(t, err)
	require.Equal(t, "no earlier release", said)

	write("README.md", "a")
	commit("nested/v0.9.0", "nested/v1.0.0", "nested/v1.1.0-rc.1", "nested/v1.2.0", "nested/vague")
	write("nested/n.go", "package nested\n") // the present one does not matter
	write("internal/x/x.go", "package x\n\nfunc F() {}\n\nfunc G() {}\n")
	said, err = build("v1.2.0")
	require.NoError(t, err)
	require.Equal(t, "release v1.0.0 builds with "+path+" v1.2.0", said)

	write("internal/x/x.go", "package x\n\nfunc G() {}\n")
	_, err = build("v1.2.0")
	require.ErrorContains(t, err, "release v1.0.0 with "+path+" v1.2.0")
	require.ErrorContains(t, err, "undefined: x.F")

	said, err = build("v2.0.0+incompatible")
	require.NoError(t, err)
	require.Equal(t, "release v1.0.0 may not fit "+path+" v2.0.0+incompatible", said)
}

// A shallow clone has no tags, as that of actions/checkout by default, so that no release would ever be built.
func TestLatestTag_shallowCloneWithoutTags(t *testing.T) {
	t.Setenv("CI", "true")
	nested := releaseModule{published: published{dir: "nested"}, version: "v1.2.0"}
	root := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a", "--allow-empty"}} {
		_, err := git(root, args...)
		require.NoError(t, err)
	}
	version, err := latestTag(root, nested)
	require.NoError(t, err, "nothing was released yet")
	require.Empty(t, version)

	_, err = git(root, "tag", "nested/v1.1.0")
	require.NoError(t, err)
	for options, want := range map[string]string{"--depth=1 --no-tags": "", "--depth=1 --tags": "v1.1.0", "--tags": "v1.1.0"} {
		clone := filepath.Join(t.TempDir(), "clone")
		_, err = git(root, append([]string{"clone", "-q", "file://" + filepath.ToSlash(root), clone}, strings.Fields(options)...)...)
		require.NoError(t, err)
		version, err = latestTag(clone, nested)
		require.Equal(t, want, version, options)
		if want == "" {
			require.ErrorContains(t, err, "shallow clone")
		} else {
			require.NoError(t, err, options)
		}
	}
}

func TestCompatibility_ofVersions(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "v0.1", "v0.2.3": "v0.2", "v1.2.3": "v1", "v1.9.0": "v1", "v2.0.0": "v2"} {
		require.Equal(t, want, compatibility(version))
	}
}
