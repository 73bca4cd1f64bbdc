package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// TestFile_loadsNoHalf checks what is loaded of a file that is written in two parts, each of which is a valid
// file. (Review L1: with a pause of 200 ms the first half was loaded.)
func TestFile_loadsNoHalf(t *testing.T) {
	half := "domain: d\nlimits:\n- {name: a, match: /a, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
	whole := half + "- {name: b, match: /b, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
	const mark = "...\n"
	for name, tt := range map[string]struct {
		before, after string
		pause         time.Duration // between the half and after; 0: after is written in one part
		polls         bool          // the file system reports no events, and is asked each second
		want          []string
	}{
		"one part":           {half, whole, 0, false, []string{"2 limits 1s"}},
		"invalid":            {whole, half + "- {name: c}", 0, false, []string{"error 1s"}},
		"pause":              {whole, whole + "\n", 900 * time.Millisecond, false, []string{"2 limits 1.9s"}},
		"long pause":         {whole, whole + "\n", 2900 * time.Millisecond, false, []string{"1 limits 1s", "2 limits 3.9s"}}, // not known to be incomplete
		"long pause, marked": {whole + mark, whole + "\n" + mark, 2900 * time.Millisecond, false, []string{"error 1s", "2 limits 3.9s"}},
		"marker is removed":  {whole + mark, whole, 0, false, []string{"error 1s"}},
		"marker is new":      {whole, whole + mark, 0, false, []string{"2 limits 1s"}},
		"polls, pause":       {whole, whole + "\n", 900 * time.Millisecond, true, []string{"2 limits 2s"}},
		"polls, long pause":  {whole, whole + "\n", 2900 * time.Millisecond, true, []string{"1 limits 2s", "2 limits 4s"}},
		"polls, marked":      {whole + mark, whole + "\n" + mark, 2900 * time.Millisecond, true, []string{"error 2s", "2 limits 4s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &File{Path: filepath.Join(t.TempDir(), "limits.yaml")}
			start := time.Now()
			events, done := make(chan fsnotify.Event, 2), make(chan struct{})
			write := func(text string) {
				require.NoError(t, os.WriteFile(f.Path, []byte(text), 0o600))
				if !tt.polls {
					events <- fsnotify.Event{Name: f.Path, Op: fsnotify.Write}
				}
			}
			require.NoError(t, os.WriteFile(f.Path, []byte(tt.before), 0o600))
			require.NoError(t, f.Reload())
			var ticks <-chan time.Time
			if tt.polls {
				ticker := time.NewTicker(time.Second)
				defer ticker.Stop()
				ticks = ticker.C
			}
			var got []string
			var watching sync.WaitGroup
			watching.Go(func() {
				w := &fileWatcher{events: &fsnotify.Watcher{Events: events}, names: map[string]bool{f.Path: true}}
				for w.wait(done, ticks) {
					switch changed, err := f.reloadChanged(w.polled); {
					case err != nil:
						got = append(got, fmt.Sprint("error ", time.Since(start)))
					case changed:
						got = append(got, fmt.Sprint(len(f.Set().All()), " limits ", time.Since(start)))
					}
				}
			})
			if tt.pause > 0 {
				write(half)
				time.Sleep(tt.pause)
			}
			write(tt.after)
			time.Sleep(10 * time.Second)
			close(done)
			watching.Wait()
			require.Equal(t, tt.want, got, name)
		})
	}
}

// TestFile_reloadAcceptsAFileWithoutItsMarker checks that Reload, which a program calls, loads what is there.
func TestFile_reloadAcceptsAFileWithoutItsMarker(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "limits.yaml")}
	for text, marked := range map[string]bool{"domain: a\n...\n": true, "domain: a\n...": true, "domain: a\r\n... \r\n\r\n": true, "domain: a...\n": false, "domain: a\n": false} {
		require.NoError(t, os.WriteFile(f.Path, []byte(text), 0o600))
		require.NoError(t, f.Reload(), text)
		require.Equal(t, marked, f.isMarked, text)
	}
}
