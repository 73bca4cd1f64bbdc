package rules_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// testTimeout is how long tests wait on a busy machine.
const testTimeout = 30 * time.Second

// fileOf returns a file with one limit that has the given word.
func fileOf(word string) string {
	return "domain: api\ndescriptors:\n- key: a\n  rate_limit: {unit: hour, " + word + "}\n"
}

// write writes text to a file in place.
func write(t *testing.T, path, text string) {
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// openFile returns an open File with a limit of 2 per hour, and a channel with the arguments of
// OnReload.
func openFile(t *testing.T, path string) (*rules.File, <-chan error) {
	reloads := make(chan error, 100)
	f := &rules.File{Path: path, OnReload: func(err error) { reloads <- err }}
	require.NoError(t, f.Open())
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, reloads
}

// waitForReload waits for a reload after which the limit has the text want.
func waitForReload(t *testing.T, f *rules.File, reloads <-chan error, want string) {
	for end := time.After(testTimeout); ; {
		select {
		case err := <-reloads:
			if err == nil && strings.Contains(f.Set().String(), want) {
				return
			}
		case <-end:
			require.Fail(t, "no reload", want)
		}
	}
}

func TestFile_reloadsHoweverItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	write(t, path, fileOf("requests_per_unit: 2"))
	f, reloads := openFile(t, path)

	write(t, path, fileOf("requests_per_unit: 3"))
	waitForReload(t, f, reloads, "3 per 1h")

	write(t, path+".tmp", fileOf("requests_per_unit: 4"))
	require.NoError(t, os.Rename(path+".tmp", path))
	waitForReload(t, f, reloads, "4 per 1h")

	require.NoError(t, os.Rename(path, path+"~"))
	write(t, path, fileOf("requests_per_unit: 5"))
	waitForReload(t, f, reloads, "5 per 1h")
}

// TestFile_followsAKubernetesVolume replaces the link in the middle of limits.yaml ->
// ..data/limits.yaml, ..data -> ..1.
func TestFile_followsAKubernetesVolume(t *testing.T) {
	dir := t.TempDir()
	release := func(n int) {
		folder := fmt.Sprintf("..%d", n)
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		write(t, filepath.Join(dir, folder, "limits.yaml"), fileOf(fmt.Sprintf("requests_per_unit: %d", n)))
		require.NoError(t, os.Symlink(folder, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if n > 1 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", n-1))))
		}
	}
	release(1)
	path := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "limits.yaml"), path))
	f, reloads := openFile(t, path)
	for n := 2; n <= 4; n++ {
		release(n)
		waitForReload(t, f, reloads, fmt.Sprintf("%d per 1h", n))
	}
}

// TestFile_followsAFolderThatComesBack removes the folder of the file and creates it again.
func TestFile_followsAFolderThatComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	path := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, path, fileOf("requests_per_unit: 2"))
	f, reloads := openFile(t, path)
	require.NoError(t, os.RemoveAll(dir))
	select {
	case err := <-reloads:
		require.ErrorIs(t, err, os.ErrNotExist)
	case <-time.After(testTimeout):
		require.Fail(t, "no error although the file is gone")
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, path, fileOf("requests_per_unit: 3"))
	waitForReload(t, f, reloads, "3 per 1h")
}

// TestFile_brokenFileKeepsTheOldRules checks that an invalid file changes nothing, and that the
// error contains line and column.
func TestFile_brokenFileKeepsTheOldRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, fileOf("requests_per_unit: 2"))
	f, reloads := openFile(t, path)
	old := f.Set()
	write(t, path, fileOf("request_per_unit: 3"))
	for end := time.After(testTimeout); ; {
		select {
		case err := <-reloads:
			if !strings.Contains(err.Error(), "request_per_unit") {
				continue // the file was read while it was empty
			}
			require.ErrorContains(t, err, "rules: 4:28: rate_limit has no word \"request_per_unit\"")
			var fault *rules.Error
			require.ErrorAs(t, err, &fault)
			require.Same(t, old, f.Set())
			write(t, path, fileOf("requests_per_unit: 3"))
			waitForReload(t, f, reloads, "3 per 1h")
			return
		case <-end:
			require.Fail(t, "no error for the invalid file")
		}
	}
}

// TestFile_panicOfBuildIsAnError checks that a changed file for which Config.Build panics does not
// end the process, and that later changes are read.
func TestFile_panicOfBuildIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, fileOf("burst: 1, requests_per_unit: 2"))
	reloads := make(chan error, 100)
	f := &rules.File{Path: path, OnReload: func(err error) { reloads <- err }, Config: rules.Config{
		Build: func(l *rules.Limit) (throttle.Limiter, error) {
			return throttle.NewTokenBucket(l.Spec.(throttle.Limit)), nil
		},
	}}
	require.NoError(t, f.Open())
	defer f.Close()
	old := f.Set()
	write(t, path, fileOf("algorithm: leaky_bucket, requests_per_unit: 2"))
	for end := time.After(testTimeout); ; {
		select {
		case err := <-reloads:
			if strings.Contains(err.Error(), "empty") {
				continue // the file was read while it was empty
			}
			require.ErrorContains(t, err, "limits.yaml: rules: a function of Config panicked: interface conversion")
			require.Same(t, old, f.Set())
			write(t, path, fileOf("burst: 1, requests_per_unit: 3"))
			waitForReload(t, f, reloads, "3 per 1h")
			return
		case <-end:
			require.Fail(t, "no error for the panic")
		}
	}
}

// TestFile_leavesNoGoroutine checks that Close ends the goroutines of the package and of fsnotify.
func TestFile_leavesNoGoroutine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, fileOf("requests_per_unit: 2"))
	f := &rules.File{Path: path}
	require.NoError(t, f.Open())
	require.Error(t, f.Open())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(testTimeout); ; runtime.Gosched() {
		all := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(all, "fsnotify.") && !strings.Contains(all, "rules.(*File).watch") {
			return
		}
		require.True(t, time.Now().Before(end), all)
	}
}

func TestFile_openReturnsErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	f := &rules.File{Path: path}
	require.ErrorIs(t, f.Open(), os.ErrNotExist)
	require.Panics(t, func() { f.Set() })
	require.ErrorContains(t, (&rules.File{Path: t.TempDir()}).Open(), "rules: read ")
	write(t, path, "domain: [")
	require.ErrorContains(t, f.Open(), "rules: 1:1: not YAML")
	write(t, path, fileOf("requests_per_unit: 2"))
	require.NoError(t, f.Open())
	require.NoError(t, f.Close())
}

// TestFile_waitersAreRetimed lets a claim wait for an hour, and changes its limit.
func TestFile_waitersAreRetimed(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want time.Duration
	}{
		"another rate":      {fileOf("requests_per_unit: 60, algorithm: token_bucket, burst: 1"), 2 * time.Minute},
		"another algorithm": {fileOf("requests_per_unit: 60, algorithm: sliding_log"), time.Minute},
		"none":              {"domain: api\n", time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			w := &queue.Queue{}
			defer w.Close()
			f := &rules.File{Path: path, Queue: w}
			write(t, path, fileOf("requests_per_unit: 1, algorithm: token_bucket, burst: 1"))
			require.NoError(t, f.Reload())
			start := time.Now()
			pass := func() {
				var ticket queue.Ticket
				f.Add(&ticket, rules.Descriptor{{Key: "a", Value: "x"}})
				require.NoError(t, w.Wait(context.Background(), &ticket))
				w.Report(context.Background(), &ticket, throttle.Feedback{})
			}
			pass()
			done := make(chan time.Duration)
			go func() {
				pass()
				done <- time.Since(start)
			}()
			time.Sleep(time.Minute)
			write(t, path, tt.text)
			require.NoError(t, f.Reload())
			// At 60 per hour the missing 59/60 of a unit take 59 seconds.
			require.InDelta(t, tt.want.Seconds(), (<-done).Seconds(), 1, name)
		})
	}
}
