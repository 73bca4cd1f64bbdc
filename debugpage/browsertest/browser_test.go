package browsertest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A browser is a tab of a headless Chromium. It collects what the page writes to the console.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []string
}

// programs are the names of Chromium in Debian and elsewhere.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// startBrowser starts a browser. The test is skipped if Chromium is not installed, and fails
// with CI=true.
func startBrowser(t *testing.T) *browser {
	i := slices.IndexFunc(programs, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if i < 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("Chromium is not installed: apt-get install chromium")
		}
		t.Skip("Chromium is not installed: apt-get install chromium")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(programs[i]), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	var err error
	for range 3 { // on a busy machine Chromium sometimes ends while it starts
		allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(allocator)
		if err = chromedp.Do(ctx); err != nil {
			cancel()
			cancelAllocator()
			continue
		}
		b := &browser{t: t, ctx: ctx}
		listening := b.listen()
		t.Cleanup(func() {
			cancel()
			cancelAllocator()
			listening.Wait()
		})
		return b
	}
	require.NoError(t, err)
	return nil
}

// listen collects the messages of the console, until the context of the browser ends.
func (b *browser) listen() *sync.WaitGroup {
	messages, running := chromedp.Console(b.ctx), new(sync.WaitGroup)
	running.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.messages = append(b.messages, string(m.Type)+": "+m.Text)
			b.mu.Unlock()
		}
	})
	return running
}

// requireQuiet checks that the page has written nothing to the console.
func (b *browser) requireQuiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.messages)
}

// run runs an action for at most two minutes, and returns its value.
func run[V any](b *browser, action chromedp.Action[V]) V {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return v
}

// open opens url in a window of a size and a color scheme.
func (b *browser) open(url string, width, height int64, scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media)
	require.NoError(b.t, err)
	run(b, chromedp.Steps(chromedp.EmulateViewport(width, height), chromedp.Navigate(url), chromedp.WaitVisible("#quotas")))
}

// eval returns the value of a JavaScript expression.
func eval[V any](b *browser, expression string) V {
	b.t.Helper()
	return run(b, chromedp.Evaluate[V](expression))
}

// waitFor waits until a JavaScript expression is true.
func (b *browser) waitFor(expression string) {
	b.t.Helper()
	run(b, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(90*time.Second)))
}
