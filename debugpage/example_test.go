package debugpage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/debugpage"
)

// A browser gets the page, and a program that accepts JSON its data.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Policy", `"default";q=100;w=60`)
		w.Header().Set("RateLimit", `"default";r=42;t=30`)
	}))
	defer api.Close()

	page := &debugpage.Page{Title: "reports"}
	transport := &heed.Transport{Trace: page.Trace()}
	page.Add("api", transport)
	admin := httptest.NewServer(page) // or http.Handle("/debug/heed", page) on an internal address
	defer admin.Close()

	resp, err := heed.NewClient(transport).Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	req, _ := http.NewRequest(http.MethodGet, admin.URL, nil)
	req.Header.Set("Accept", "application/json")
	resp, err = http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var state struct {
		Quotas []struct {
			Rows []struct {
				Limits []struct {
					Name            string
					Remaining, Size int64
					Known           string
				}
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range state.Quotas[0].Rows[0].Limits {
		fmt.Printf("%s: %d of %d left, %s\n", l.Name, l.Remaining, l.Size, l.Known)
	}
	// Output: default: 42 of 100 left, stated
}
