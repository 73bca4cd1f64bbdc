package poll

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzOperation: whatever a server says, what is asked is a URL of HTTP, and a
// credential goes to nobody but the host that had it first.
func FuzzOperation(f *testing.F) {
	f.Add("/ops/1", "", `{"status":"Running"}`)
	f.Add("https://ops.api.test/1", "//evil.test", `{"status":"Succeeded","resourceLocation":"https://api.test@evil.test"}`)
	f.Add("http://api.test/", "https://evil.test/", `{"properties":{"provisioningState":"Creating"}}`)
	f.Add("https://api.test\\@evil.test", "\x00", `[]`)
	f.Fuzz(func(t *testing.T, monitor, location, body string) {
		resp := newResponse(202, body)
		resp.Header["Operation-Location"], resp.Header["Location"] = []string{monitor}, []string{location}
		resp.Request = &http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "api.test", Path: "/vm"}}
		op, err := operationOf(resp, []byte(body))
		if err != nil || op.URL == "" {
			return
		}
		state, _ := parseAzureStatus(resp, []byte(body), op.Monitor)
		asked := []string{op.URL, op.result()}
		if target, err := resolve(resp, state.ResultURL); err == nil {
			asked = append(asked, target)
		}
		for _, a := range asked {
			u, err := url.Parse(a)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" && a != "" {
				t.Fatalf("asks %q: %v", a, err)
			}
			sent := op.headerFor(u, http.Header{"Authorization": {"x"}}).Get("Authorization") != ""
			host := strings.ToLower(u.Hostname())
			if sent && (u.Scheme != "https" || host != "api.test" && !strings.HasSuffix(host, ".api.test")) {
				t.Fatalf("tells %q", a)
			}
		}
	})
}
