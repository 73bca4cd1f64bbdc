package rules_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttlehttp"
)

// The limits of a File change when the file changes; units in use stay in use. A program only
// writes the file. Reload reads it immediately, for instance on SIGHUP. Here the limit is lowered
// from 3 to 2 per hour when one unit is in use.
func ExampleFile() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.yaml")
	write := func(perHour int) error {
		text := fmt.Sprintf("domain: api\nlimits:\n  - name: search\n    match: /search\n    rate_limit: {unit: hour, requests_per_unit: %d, algorithm: sliding_log}\n", perHour)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	if err := write(3); err != nil {
		fmt.Println(err)
		return
	}

	f := &rules.File{Path: path}
	if err := f.Open(); err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	server := (&throttlehttp.Middleware{Limits: f.Limits}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func() int {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search", nil))
		return w.Code
	}

	fmt.Println(get())
	if err := write(2); err != nil {
		fmt.Println(err)
		return
	}
	if err := f.Reload(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(get(), get())
	// Output:
	// 200
	// 200 429
}
