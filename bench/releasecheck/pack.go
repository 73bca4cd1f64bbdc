package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// maxTestdata is the maximum size of all testdata of a module, in bytes. Every user
// downloads them.
const maxTestdata = 4 << 20

// pack writes m into the proxy, in the layout of "go help goproxy", and describes the
// result.
func pack(root, proxy string, m releaseModule) (string, error) {
	files, err := trackedFiles(root, m.dir)
	if err != nil {
		return "", err
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, module.Version{Path: m.path, Version: m.version}, files); err != nil {
		return "", err
	}
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	info, err := json.Marshal(map[string]any{"Version": m.version, "Time": time.Now().UTC()})
	if err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{
		"list": []byte(m.version + "\n"), m.version + ".info": info,
		m.version + ".mod": m.goMod, m.version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	names, err := inspect(archive.Bytes(), m.path+"@"+m.version+"/")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d files, %d KiB", names, archive.Len()>>10), nil
}

// trackedFiles returns the files in dir that git tracks, or would track after git add. Of
// nested modules zip.Create takes nothing. A module without a license gets that of the
// repository, as from the go command.
func trackedFiles(root, dir string) ([]zip.File, error) {
	folder := filepath.Join(root, dir)
	out, err := git(folder, "ls-files", "-z", "--deduplicate", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var files []zip.File
	licensed := false
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		f := file{name: name, path: filepath.Join(folder, filepath.FromSlash(name))}
		if _, err := f.Lstat(); errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not committed
		}
		licensed = licensed || name == "LICENSE"
		files = append(files, f)
	}
	if !licensed {
		files = append(files, file{name: "LICENSE", path: filepath.Join(root, "LICENSE")})
	}
	return files, nil
}

// A file implements zip.File.
type file struct{ name, path string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }

// checkName returns an error if a file must not be part of a published module. The name is
// relative to the module.
func checkName(name string) error {
	dir, base := path.Split(name)
	switch {
	case base == "go.mod" && dir != "":
		return fmt.Errorf("%s: the archive contains a nested module", name)
	case strings.Contains("/"+dir, "/node_modules/"):
		return fmt.Errorf("%s: the archive contains installed packages of npm", name)
	}
	return nil
}
