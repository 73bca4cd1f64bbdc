// Package source lets programs build the repository with a changed file that is not written to the
// checkout.
package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// IsTracker reports whether dir, below the root of the repository and with slashes, is package quota or one of its
// internal packages.
func IsTracker(dir string) bool { return dir == "quota" || strings.HasPrefix(dir, "quota/internal/") }

// Overlay writes text to a file in dir, and returns the path of a file for the flag -overlay of the
// go command. With it the go command reads text instead of file, which is an absolute path.
func Overlay(dir, file string, text []byte) (string, error) {
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}
