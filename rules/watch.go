package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fileWatcher reports when a file may have changed.
//
// It watches folders instead of the file, because an editor that saves by renaming replaces the
// file, and a watch on the old file would report nothing. If symbolic links lead to the file, it
// watches the folder of each link: a Kubernetes volume changes by replacing a link in a parent
// folder.
//
//	limits.yaml ──▶ ..data/limits.yaml        links: limits.yaml, ..data
//	..data      ──▶ ..2026_11_21/             a change of the volume replaces the link ..data
type fileWatcher struct {
	path    string
	events  *fsnotify.Watcher
	folders map[string]bool // watched folders
	names   map[string]bool // names in these folders whose changes are reported
	polled  bool            // the last wait ended with a tick, without an event
}

const (
	settleTime      = 50 * time.Millisecond // time without events after which a replacement is considered complete
	maxSettleTime   = time.Second           // maximum time to wait for settleTime without events
	writeSettleTime = time.Second           // time without events after which a write in place is considered complete
	maxLinks        = 40                    // maximum number of links on the path of a file, as in Linux
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

// refresh updates the watches to the links that lead to the file now. For a missing folder it
// watches the nearest existing parent.
func (w *fileWatcher) refresh() {
	w.names = map[string]bool{}
	folders := map[string]bool{}
	for _, name := range linkChain(w.path) {
		w.names[name] = true
		d := filepath.Dir(name)
		// Add folders that are watched already too: another folder may have taken the same path.
		for w.events.Add(d) != nil && d != filepath.Dir(d) {
			w.names[d] = true
			d = filepath.Dir(d)
		}
		folders[d] = true
	}
	for d := range w.folders {
		if !folders[d] {
			_ = w.events.Remove(d) // fails if the folder is gone
		}
	}
	w.folders = folders
}

// linkChain returns the path of the file and all links that lead to it.
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

// firstLink returns the first symbolic link on path, and path with that link resolved. It returns
// "" if there is no link.
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

// wait blocks until the file may have changed and no further event has arrived for settleTime, or for
// writeSettleTime if it was written in place, as a file is by a writer that pauses. It returns false if
// done is closed.
func (w *fileWatcher) wait(done <-chan struct{}, ticks <-chan time.Time) bool {
	var quiet, limit <-chan time.Time
	w.polled = false
	settle := settleTime
	for {
		select {
		case <-done:
			return false
		case <-ticks:
			if quiet == nil {
				w.polled = true
				return true
			}
			continue
		case <-quiet:
			return true
		case <-limit:
			return true
		case e := <-w.events.Events:
			if !w.names[filepath.Clean(e.Name)] && !w.folders[filepath.Clean(e.Name)] {
				continue
			}
			if e.Has(fsnotify.Write) {
				settle = writeSettleTime
			}
		case <-w.events.Errors: //nolint:errcheck // events were lost: assume a write
			settle = writeSettleTime
		}
		quiet = time.After(settle)
		switch {
		case settle == writeSettleTime:
			limit = nil
		case limit == nil:
			limit = time.After(maxSettleTime)
		}
	}
}
