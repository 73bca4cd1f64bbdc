// Package github labels the issues of a repository, with go-github and heed.
package github

import (
	"context"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-github/v89/github"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// NewClient returns a client for all goroutines of a program. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper, token string) (*github.Client, error) {
	// GitHub asks for one second between requests that change something.
	writes := throttle.NewTokenBucket(throttle.PerSecond(1))
	transport := &heed.Transport{
		Base: base,
		Limits: func(req *http.Request, t *queue.Ticket) error {
			if req.Method != http.MethodGet {
				t.Add(throttle.Demand{Limiter: writes})
			}
			return nil
		},
		Retry: &heed.RetryPolicy{
			MaxServerWait: time.Hour, // for the quota of the next hour, if that of this one is used up
			MaxElapsed:    2 * time.Hour,
			Idempotent: func(req *http.Request) bool { // a label that an issue already has changes nothing
				addsLabel, _ := path.Match("/repos/*/*/issues/*/labels", req.URL.Path)
				return addsLabel
			},
		},
	}
	return github.NewClient(
		github.WithHTTPClient(heed.NewClient(transport)),
		github.WithAuthToken(token),
		github.WithDisableRateLimitCheck(), // heed waits where this check fails the call
	)
}

// Label adds a label to all open issues of a repository. It returns how many have got it.
// There is a goroutine per issue, as those that wait cost little: heed queues their requests.
func Label(ctx context.Context, client *github.Client, owner, repo, label string) (labeled int, err error) {
	var n atomic.Int64
	var all sync.WaitGroup
	page := &github.IssueListByRepoOptions{ListOptions: github.ListOptions{PerPage: 100}}
	for issue, e := range client.Issues.ListByRepoIter(ctx, owner, repo, page) {
		if err = e; err != nil {
			break
		}
		all.Go(func() {
			if _, _, err := client.Issues.AddLabelsToIssue(ctx, owner, repo, issue.GetNumber(), []string{label}); err == nil {
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load()), err
}
