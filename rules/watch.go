package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fileWatcher tells when a file may have changed.
//
// It watches folders and not the file: an editor that saves by renaming puts another
// file into its place, of which nobody would be told. Where symbolic links lead to the
// file, it watches the folder of each: a Kubernetes volume changes by a new link in a
// folder above.
//
//	limits.yaml ──▶ ..data/limits.yaml        links: limits.yaml, ..data
//	..data      ──▶ ..2026_11_21/             when the volume changes, ..data leads elsewhere
type fileWatcher struct {
	path    string
	events  *fsnotify.Watcher
	folders map[string]bool // that are watched
	names   map[string]bool // in them, which matter
}

const (
	settleTime    = 50 * time.Millisecond // of quiet, after which whoever is writing has probably finished
	maxSettleTime = time.Second           // longest wait for quiet
	maxLinks      = 40                    // that may lead to a file, as the system has it
)

func newFileWatcher(path string) (*fileWatcher, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("rules: %s cannot be watched: %w", path, err)
	}
	w := &fileWatcher{path: abs, events: events, folders: map[string]bool{}}
	w.refresh()
	return w, nil
}

func (w *fileWatcher) close() error { return w.events.Close() }

// refresh watches what leads to the file now. Of a folder that is not there, it watches
// the one above.
func (w *fileWatcher) refresh() {
	w.names = map[string]bool{}
	folders := map[string]bool{}
	for _, name := range linkChain(w.path) {
		w.names[name] = true
		d := filepath.Dir(name)
		// Also one that is watched is added: it may be another folder by now.
		for w.events.Add(d) != nil && d != filepath.Dir(d) {
			w.names[d] = true
			d = filepath.Dir(d)
		}
		folders[d] = true
	}
	for d := range w.folders {
		if !folders[d] {
			_ = w.events.Remove(d) // it may be gone
		}
	}
	w.folders = folders
}

// linkChain returns the file and all links that lead to it.
func linkChain(path string) (all []string) {
	for range maxLinks {
		all = append(all, path)
		at, target := firstLink(path)
		if at == "" {
			return all
		}
		all = append(all, at)
		path = target
	}
	return all
}

// firstLink returns the first symbolic link on the way to path, and where path is when that
// is followed; "": there is none.
func firstLink(path string) (at, target string) {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != filepath.Separator {
			continue
		}
		to, err := os.Readlink(path[:end])
		if err != nil {
			continue
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path[:end]), to)
		}
		return path[:end], filepath.Clean(to + path[end:])
	}
	return "", ""
}

// wait returns when the file may have changed and nobody seems to be writing it any
// more; false: done is closed.
func (w *fileWatcher) wait(done <-chan struct{}, ticks <-chan time.Time) bool {
	var quiet, limit <-chan time.Time
	for {
		select {
		case <-done:
			return false
		case <-ticks:
			return true
		case <-quiet:
			return true
		case <-limit:
			return true
		case e := <-w.events.Events:
			if !w.names[filepath.Clean(e.Name)] && !w.folders[filepath.Clean(e.Name)] {
				continue
			}
		case <-w.events.Errors: // some events were lost: look
		}
		quiet = time.After(settleTime)
		if limit == nil {
			limit = time.After(maxSettleTime)
		}
	}
}
