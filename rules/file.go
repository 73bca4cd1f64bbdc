package rules

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle/queue"
)

// File holds the limits of a file that may change while they are in force. After each change the
// file is read again. All of its limits change at the same time, or none if the file contains an
// error:
//
//	f := &rules.File{Path: "limits.yaml", OnReload: func(err error) { … }}
//	if err := f.Open(); err != nil { … }
//	defer f.Close()
//	transport := &heed.Transport{Limits: f.Limits, Queue: f.Queue}
//
// A limit that is in the file before and after a change, with the same Limit.ID, keeps its counts
// if it is unchanged or only its numbers have changed: units in use stay in use, and a bucket
// contains no more than before. A limit with another algorithm starts anew, and requests that wait
// for the old limit ask the new one. The algorithms concurrency and nginx, compact
// limits, and limiters of Config.Build also start anew if only their numbers change. Requests that
// wait for a limit that has been removed are admitted by it.
//
// The file may be replaced by renaming, and each symbolic link on its path may be replaced, as in a
// Kubernetes volume. A file that is written in place is read when nothing has been written for a second.
// A writer that pauses for longer can end the file with a line "...", the end of a document in YAML: once
// a file with such a line is in force, a changed file without it is incomplete, which is an error, except
// for Reload. Fields must not be changed after Open, and a File must not be copied.
type File struct {
	// Path is the path of the file. It must be set.
	Path string
	Config

	// OnReload is called after each attempt to read the changed file, but not by Open and Reload.
	// An error means that the old limits stay in force; it contains the line and column of each
	// error in the file, or the panic of a function of Config. OnReload must not call Close. Nil
	// means no call.
	OnReload func(error)

	// Queue is woken when limits have changed, so that waiters ask the changed limits immediately.
	// Nil means that waiters ask when their current wait is over.
	Queue *queue.Queue

	// PollInterval is the time between checks of the file, for file systems that do not report
	// changes, as many network file systems. A changed file is loaded when two checks in sequence
	// find the same text. Zero or a negative value means no such checks.
	PollInterval time.Duration

	set      atomic.Pointer[Set]
	mu       sync.Mutex // held while the file is read
	text     []byte     // the text that was read last, valid or not
	polled   []byte     // the text that the last check of PollInterval found, if it differs from text
	isMarked bool       // the text of set ends with endMarker
	done     chan struct{}
	closing  sync.Once
	watching sync.WaitGroup
}

// Open reads the file and starts to watch it. After an error there is nothing to close.
func (f *File) Open() error {
	if f.done != nil {
		return errors.New("rules: File.Open: it is open: make another File")
	}
	w, err := newFileWatcher(f.Path) // before reading, so that no change is missed
	if err != nil {
		return err
	}
	if err := f.Reload(); err != nil {
		return errors.Join(err, w.close())
	}
	f.done = make(chan struct{})
	f.watching.Go(func() { f.watch(w) })
	return nil
}

// Close stops watching the file. The limits stay in force.
func (f *File) Close() error {
	if f.done != nil {
		f.closing.Do(func() { close(f.done) })
		f.watching.Wait()
	}
	return nil
}

// Limits adds the limits that apply to r to t, as Set.Limits does. It panics before Open or Reload
// has succeeded.
func (f *File) Limits(r *http.Request, t *queue.Ticket) error { return f.Set().Limits(r, t) }

// Add adds the limits that the descriptors lead to to t, as Set.Add does. It panics before Open or
// Reload has succeeded.
func (f *File) Add(t *queue.Ticket, descriptors ...Descriptor) { f.Set().Add(t, descriptors...) }

// Set returns the limits in force. It panics before Open or Reload has succeeded.
func (f *File) Set() *Set {
	s := f.set.Load()
	if s == nil {
		panic("rules: File: it has no limits before Open or Reload, or if that failed")
	}
	return s
}

// Reload reads the file now, whether it is watched or not. After an error the old limits stay in
// force. Reload does not call OnReload.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := readFile(f.Path, &f.Config)
	if err != nil {
		f.text = nil
		return err
	}
	return f.load(text)
}

// load makes the limits of text the limits in force. The caller holds f.mu.
func (f *File) load(text []byte) error {
	f.text, f.polled = text, nil
	p, err := parse(text, &f.Config)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	set, err := p.activate(f.Config, f.set.Load())
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	f.set.Store(set)
	f.isMarked = isMarked(text)
	if f.Queue != nil {
		f.Queue.Wake()
	}
	return nil
}

// reload reads the file. changed is false if its text is the same as before, or if it was found by a poll
// and may still be changing; then reload does nothing.
func (f *File) reload(polled bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := readFile(f.Path, &f.Config)
	if err != nil {
		changed, f.text = f.text != nil, nil
		return changed, err
	}
	switch {
	case bytes.Equal(text, f.text):
		f.polled = nil
		return false, nil
	case polled && !bytes.Equal(text, f.polled):
		f.polled = text
		return false, nil
	case f.isMarked && !isMarked(text):
		f.text, f.polled = text, nil
		return true, fmt.Errorf("%s: rules: the file does not end with %q as before: it may be incomplete", f.Path, endMarker)
	}
	return true, f.load(text)
}

// endMarker is the line that ends a document in YAML.
const endMarker = "..."

// isMarked reports whether the last line of text is endMarker.
func isMarked(text []byte) bool {
	text = bytes.TrimRight(text, " \t\r\n")
	return bytes.HasSuffix(text, []byte("\n"+endMarker))
}

// watch reads the file whenever w reports a possible change, until Close.
func (f *File) watch(w *fileWatcher) {
	defer w.close()
	var ticks <-chan time.Time
	if f.PollInterval > 0 {
		t := time.NewTicker(f.PollInterval)
		defer t.Stop()
		ticks = t.C
	}
	for w.wait(f.done, ticks) {
		w.refresh()
		if changed, err := f.reloadChanged(w.polled); changed && f.OnReload != nil {
			f.OnReload(err)
		}
	}
}

// reloadChanged is reload. A panic of a function of Config becomes an error, because there is
// no caller to raise it in: a change of the file must not end the process.
func (f *File) reloadChanged(polled bool) (changed bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			changed, err = true, fmt.Errorf("%s: rules: a function of Config panicked: %v", f.Path, v)
		}
	}()
	return f.reload(polled)
}
