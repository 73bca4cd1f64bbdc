package rules

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A File is the limits of a file that changes while they are in force. When it has
// changed it is read again, and all of it takes effect at one instant or, if anything
// is wrong with it, nothing:
//
//	f := &rules.File{Path: "limits.yaml", OnReload: func(err error) { … }}
//	if err := f.Open(); err != nil { … }
//	defer f.Close()
//	transport := &heed.Transport{Limits: f.Limits, Waiter: f.Waiter}
//
// A limit that is still there goes on with what it has counted, at the same place in
// the file and by its name or descriptors: unchanged, or with other numbers. Units in
// use stay used, and a bucket has no more in it than before. One with another algorithm
// begins anew, and who is waiting at the old one is asked for at the new one; so do
// concurrency, nginx and what Build has made, with other numbers already. One that is gone
// lets them all go.
//
// The file may be written in place, replaced by renaming, or reached by symbolic links
// of which any is replaced, as in a Kubernetes volume. No field may change after Open,
// and a File must not be copied.
type File struct {
	Path string // of the file
	Config

	// OnReload is told what came of each attempt to read the file again; not of the
	// first, which is Open's. An error means that the old limits stay, and has the line
	// and the column of what is wrong. It must not call Close. Nil: nobody is told.
	OnReload func(error)

	// Queue is woken when limits have changed, so that who waits for them need not
	// wait as long as they once said. Nil: nobody is.
	Queue *throttle.Queue

	// PollInterval is how often to look at the file besides, where the file system does not
	// tell of changes: over a network it often does not. 0: never.
	PollInterval time.Duration

	set      atomic.Pointer[Set]
	mu       sync.Mutex // held while the file is read
	text     []byte     // what was read last, whether it was any good
	done     chan struct{}
	closing  sync.Once
	watching sync.WaitGroup
}

// Open reads the file and begins to watch it. If there is an error, there is nothing
// to close.
func (f *File) Open() error {
	if f.done != nil {
		return errors.New("rules: File.Open: it is open: make another File")
	}
	w, err := newFileWatcher(f.Path) // before it is read, so that no change is missed
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

// Close ends the watching. The limits stay in force.
func (f *File) Close() error {
	if f.done != nil {
		f.closing.Do(func() { close(f.done) })
		f.watching.Wait()
	}
	return nil
}

// Limits adds to t what r must pass, as Set.Limits does. It panics before Open or Reload.
func (f *File) Limits(r *http.Request, t *throttle.Ticket) { f.Set().Limits(r, t) }

// Add adds to t what the descriptors must pass, as Set.Add does. It panics before Open
// or Reload.
func (f *File) Add(t *throttle.Ticket, descriptors ...Descriptor) { f.Set().Add(t, descriptors...) }

// Set returns the limits in force. It panics before Open or Reload.
func (f *File) Set() *Set {
	s := f.set.Load()
	if s == nil {
		panic("rules: File: it has no limits before Open or Reload, or if that failed")
	}
	return s
}

// Reload reads the file now, whether it is watched or not. If there is an error, the
// old limits stay. OnReload is not told: the caller knows.
func (f *File) Reload() error {
	_, err := f.reload(true)
	return err
}

// reload reads the file and reports whether that was news: it is not if the text is
// the same and force is not set.
func (f *File) reload(force bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := readFile(f.Path, &f.Config)
	if err != nil {
		changed, f.text = f.text != nil, nil
		return changed || force, err
	}
	if bytes.Equal(text, f.text) && !force {
		return false, nil
	}
	f.text = text
	p, err := parse(text, &f.Config)
	if err != nil {
		return true, fmt.Errorf("%s: %w", f.Path, err)
	}
	set, err := p.activate(f.Config, f.set.Load())
	if err != nil {
		return true, fmt.Errorf("%s: %w", f.Path, err)
	}
	f.set.Store(set)
	if f.Queue != nil {
		f.Queue.Wake()
	}
	return true, nil
}

// watch looks at the file whenever w says so, until Close.
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
		if changed, err := f.reload(false); changed && f.OnReload != nil {
			f.OnReload(err)
		}
	}
}
