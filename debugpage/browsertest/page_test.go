// Package browsertest tests the page of package debugpage in a headless Chromium. It is a
// module, so that users of heed do not depend on the driver of the browser.
//
//	HEED_SCREENSHOTS=../../docs/images go test -run screenshots .
//
// writes the pictures of README.md and docs/debug-page.md, which takes three minutes.
package browsertest

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/debugpage"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

const (
	wide, high = 1280, 1000
	narrow     = 320
)

var schemes = []string{"light", "dark"}

// serve serves a page, and returns its URL.
func serve(t *testing.T, page http.Handler) string {
	s := httptest.NewServer(page)
	t.Cleanup(s.Close)
	return s.URL
}

// sentNumber is the number of requests of the last minute on the page.
const sentNumber = `Number(document.getElementById("sent").textContent.replaceAll(",", ""))`

// allStates is true when the page shows several decisions, a hold, and limits that servers state and that heed has learned.
const allStates = `document.querySelectorAll(".decisions li").length > 3 && document.querySelector("tr.held") !== null &&
	["left of", "requests per second", "(overload)"].every(text => document.getElementById("quotas").textContent.includes(text))`

func TestPage_updatesItselfUnderLoad(t *testing.T) {
	b, l := startBrowser(t), startLoad(t)
	b.open(serve(t, l.page), wide, high, "light")
	b.waitFor(sentNumber + ` > 0`)
	b.waitFor(`document.getElementById("status").textContent.startsWith("live, at ")`)
	before := eval[int](b, sentNumber)
	line := eval[string](b, `document.querySelector(".sent .line").getAttribute("d")`)
	b.waitFor(fmt.Sprintf(`%s > %d`, sentNumber, before))
	b.waitFor(fmt.Sprintf(`document.querySelector(".sent .line").getAttribute("d") !== %q`, line))
	b.waitFor(`document.querySelector("tr.held .state")?.textContent.startsWith("held for ")`)
	b.waitFor(allStates)
	for _, host := range []string{"hooks.slack.com", "api.github.com", "files.example.com"} {
		b.waitFor(fmt.Sprintf(`document.getElementById("quotas").textContent.includes(%q)`, host))
	}
	require.NotContains(t, eval[string](b, `document.documentElement.outerHTML`), "secret")
	b.requireQuiet()
}

func TestPage_isReadableWithoutJavaScript(t *testing.T) {
	b, l := startBrowser(t), startLoad(t)
	url := serve(t, l.page)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	for _, host := range []string{"hooks.slack.com", "api.github.com"} {
		text := ""
		for end := time.Now().Add(time.Minute); !strings.Contains(text, host) && time.Now().Before(end); {
			b.open(url, wide, high, "light")
			text = run(b, chromedp.Text("#quotas"))
		}
		require.Contains(t, text, host)
	}
	require.Regexp(t, `^at \d\d:\d\d:\d\d UTC$`, run(b, chromedp.Text("#status")))
	require.True(t, run(b, chromedp.AttributeValue("#pause", "hidden", chromedp.NodeReady)).Exists)
	b.requireQuiet()
}

func TestPage_isUsedByKeyboard(t *testing.T) {
	b, l := startBrowser(t), startLoad(t)
	b.open(serve(t, l.page), wide, high, "light")
	focused := func() string {
		return eval[string](b, `document.activeElement.id || document.activeElement.className || document.activeElement.tagName`)
	}
	for _, want := range []string{"skip", "pause"} {
		run(b, chromedp.KeyEvent(kb.Tab))
		require.Equal(t, want, focused())
		require.Equal(t, "solid", eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`), "the focus is visible")
	}
	run(b, chromedp.KeyEvent(kb.Enter))
	require.Equal(t, "Resume", eval[string](b, `document.activeElement.textContent`))
	require.Contains(t, eval[string](b, `document.getElementById("status").textContent`), "paused at ")
	run(b, chromedp.KeyEvent(kb.Enter))
	b.waitFor(`document.getElementById("status").textContent.startsWith("live, at ")`)
	require.Equal(t, "pause", focused(), "an update keeps the focus")

	run(b, chromedp.Steps(chromedp.Focus(".skip"), chromedp.KeyEvent(kb.Enter)))
	b.waitFor(`document.activeElement.id === "main"`)
	b.requireQuiet()
}

// hostilePage returns a page with names that servers and callers chose badly.
func hostilePage(t *testing.T) *debugpage.Page {
	page := &debugpage.Page{Title: `<img src=x onerror="alerted=1"> ` + strings.Repeat("title", 50)}
	trace := page.Trace()
	tracker := new(quota.Tracker)
	page.Add(`"><script>alerted=1</script>`, &heed.Transport{Quota: tracker, Trace: trace})
	for i := range 20 {
		host := fmt.Sprintf(`%02d"><script>alerted=1</script>%s.test`, i, strings.Repeat("long", 30))
		req, err := http.NewRequest(http.MethodGet, "https://a.test/", nil)
		require.NoError(t, err)
		req.URL.Host, req.Host = host, host
		d := tracker.Demand(req)
		c := throttle.Claim{Now: time.Now()}
		decision, err := d.Limiter.Reserve(t.Context(), c)
		require.NoError(t, err)
		d.Limiter.Report(t.Context(), c, decision, throttle.Feedback{
			Now: time.Now(), Outcome: throttle.Throttled, RetryAfter: time.Hour,
			RemoteLimits: []throttle.RemoteLimit{{Name: `<b onclick=alerted=1>` + strings.Repeat("x", 100), Limit: 100, Remaining: 5, Per: time.Hour, ResetAfter: time.Hour}},
		})
		trace.Done(req, heed.DoneInfo{Info: heed.Info{StopReason: fmt.Errorf("<svg onload=alerted=1> %d %s", i, strings.Repeat("y", 500))}})
	}
	return page
}

func TestPage_escapesNames(t *testing.T) {
	b := startBrowser(t)
	b.open(serve(t, hostilePage(t)), wide, high, "dark")
	b.waitFor(`document.getElementById("status").textContent.startsWith("live, at ")`) // the script also replaces sections
	require.True(t, eval[bool](b, `window.alerted === undefined`))
	require.Equal(t, 1, eval[int](b, `document.scripts.length`))
	require.Zero(t, eval[int](b, `document.querySelectorAll("b[onclick], img, [onload]").length`))
	require.Contains(t, eval[string](b, `document.body.textContent`), `"><script>alerted=1</script>`)
	b.requireQuiet()
}

func TestPage_fitsNarrowWindows(t *testing.T) {
	b, l := startBrowser(t), startLoad(t)
	for name, page := range map[string]http.Handler{"load": l.page, "long names": hostilePage(t)} {
		for _, width := range []int64{narrow, 480, 768, wide, 2560} {
			b.open(serve(t, page), width, high, "light")
			require.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), width, "%s: the page scrolls sideways", name)
			require.Empty(t, eval[[]string](b, outside), "%s, %d px", name, width)
		}
	}
	b.requireQuiet()
}

// longHosts returns a page with a hold, decisions and waiting callers of hosts of 72 and 200 characters.
func longHosts(t *testing.T) *debugpage.Page {
	page, tracker := &debugpage.Page{Forget: func(string) {}}, new(quota.Tracker)
	trace := page.Trace()
	page.Add("", &heed.Transport{Quota: tracker, Trace: trace})
	for _, host := range []string{
		"search-production-logs-abcdefghijklmnopqrs.eu-central-1.es.amazonaws.com", // as AWS names them
		strings.Repeat("long-label.", 17) + "example12.com",                        // of 200 characters
	} {
		req, err := http.NewRequest(http.MethodGet, "https://"+host+"/", nil)
		require.NoError(t, err)
		for range 5 {
			reject(t, tracker, req, throttle.Feedback{Now: time.Now(), Outcome: throttle.Throttled, RetryAfter: time.Hour})
		}
		trace.Retry(req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Attempt: 1, Status: 503}, Delay: time.Second})
		trace.Done(req, heed.DoneInfo{Info: heed.Info{Attempts: 4, StopReason: heed.ErrMaxAttempts}, Status: 503})
		trace.WaitDone(req, heed.WaitInfo{Waited: time.Second, Limit: host + ": retry-after"})
	}
	return page
}

// reject reports the response f to a request of tracker.
func reject(t *testing.T, tracker *quota.Tracker, req *http.Request, f throttle.Feedback) {
	d := tracker.Demand(req)
	c := throttle.Claim{Now: time.Now()}
	decision, err := d.Limiter.Reserve(t.Context(), c)
	require.NoError(t, err)
	d.Limiter.Report(t.Context(), c, decision, f)
}

// TestPage_longHostsDoNotSqueezeTexts measures the columns of texts beside long hosts. With
// HEED_SCREENSHOTS it writes pictures of them.
func TestPage_longHostsDoNotSqueezeTexts(t *testing.T) {
	b := startBrowser(t)
	url := serve(t, longHosts(t))
	for _, width := range []int64{narrow, 800, 1200} {
		b.open(url, width, high, "light")
		require.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), width, "the page scrolls sideways")
		require.Empty(t, eval[[]string](b, outside), "%d px", width)
		for _, column := range []string{".decisions .text", ".quotas td[data-label=State]", ".quotas td[data-label=Limits]"} {
			widths := eval[[]float64](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.getBoundingClientRect().width)`, column))
			require.NotEmpty(t, widths, column)
			t.Logf("%d px: %s is %.0f px wide", width, column, slices.Min(widths))
			require.GreaterOrEqual(t, slices.Min(widths), minWidths[column], "%d px: %s", width, column)
		}
		if folder := os.Getenv("HEED_SCREENSHOTS"); folder != "" {
			picture := run(b, chromedp.FullScreenshot(100))
			require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("long-hosts-%d.png", width)), picture, 0o666))
		}
	}
	b.requireQuiet()
}

// minWidths are the least widths of columns in px.
var minWidths = map[string]float64{".decisions .text": 240, ".quotas td[data-label=State]": 110, ".quotas td[data-label=Limits]": 180}

// outside lists the elements that reach beyond the window or their own text box.
const outside = `[...document.querySelectorAll("body *:not(.skip):not(thead):not(thead *)")]
	.filter(e => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.left < -1 || r.right > innerWidth + 1); })
	.map(e => e.tagName + "." + e.getAttribute("class"))`

func TestPage_hasContrast(t *testing.T) {
	b, l := startBrowser(t), startLoad(t)
	url := serve(t, l.page)
	for _, scheme := range schemes {
		b.open(url, wide, high, scheme)
		b.waitFor(allStates)
		require.Greater(t, eval[int](b, `(`+contrasts+`).length`), 50, "texts are measured")
		require.Empty(t, eval[[]string](b, `(`+contrasts+`).filter(c => c.ratio < c.least).map(c => c.text + ": " + c.ratio)`), scheme)
	}
	b.requireQuiet()
}

// contrasts measures each text against the colors behind it: WCAG 2.2, success criterion
// 1.4.3 (level AA).
const contrasts = `(() => {
	const parse = (c) => { const n = c.match(/[\d.]+/g).map(Number); return { r: n[0], g: n[1], b: n[2], a: n[3] ?? 1 }; };
	const over = (f, b) => ({ r: f.r * f.a + b.r * (1 - f.a), g: f.g * f.a + b.g * (1 - f.a), b: f.b * f.a + b.b * (1 - f.a), a: 1 });
	const light = (c) => { const [r, g, b] = [c.r, c.g, c.b].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const behind = (e) => {
		if (!e) return { r: 255, g: 255, b: 255, a: 1 };
		const c = parse(getComputedStyle(e).backgroundColor);
		return c.a === 1 ? c : over(c, behind(e.parentElement));
	};
	const all = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const text = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
		if (!text || e.closest("script, style") || !e.getClientRects().length) continue;
		const style = getComputedStyle(e), back = behind(e), front = over(parse(style.color), back);
		const [x, y] = [light(front), light(back)].sort((a, b) => b - a);
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		all.push({ text, ratio: (x + .05) / (y + .05), least: large ? 3 : 4.5 });
	}
	return all;
})()`

func TestPage_screenshots(t *testing.T) {
	folder, charts := os.Getenv("HEED_SCREENSHOTS"), 3*time.Minute
	if folder == "" {
		folder, charts = t.TempDir(), 0
	}
	b, l := startBrowser(t), startLoad(t)
	url := serve(t, l.page)
	b.open(url, wide, high, "light")
	b.waitFor(allStates)
	time.Sleep(charts)
	for name, s := range map[string]struct {
		width, height int64
		scheme        string
	}{
		"debug-page-light":  {wide, 1010, "light"},
		"debug-page-dark":   {wide, 1010, "dark"},
		"debug-page-narrow": {narrow, 1000, "dark"},
	} {
		b.open(url, s.width, s.height, s.scheme)
		b.waitFor(`document.getElementById("status").textContent.startsWith("live, at ")`)
		picture := run(b, chromedp.CaptureScreenshot())
		image, err := png.Decode(bytes.NewReader(picture))
		require.NoError(t, err)
		require.Equal(t, int(s.width), image.Bounds().Dx())
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o666))
	}
	b.requireQuiet()
}
