// Package debugpage shows what heed knows and does on a web page: what is known of the limits
// of each server and how, holds with their reason and end, queues, retry budgets, recent
// decisions, and charts of the last minutes.
//
//	page := new(debugpage.Page)
//	transport := &heed.Transport{Trace: page.Trace()}
//	page.Add("api", transport)
//	http.Handle("/debug/heed", page)
//
// The page needs no other files and no JavaScript. With JavaScript it updates itself. Requests
// that accept application/json rather than text/html get the same data as JSON.
//
// The page is read-only, unless Page.Forget is set. It does not show paths, queries, header fields, bodies, credentials,
// the keys of limits and the names of tenants. It does show the hosts that the program calls,
// so it should be reachable by operators only, like net/http/pprof.
package debugpage
