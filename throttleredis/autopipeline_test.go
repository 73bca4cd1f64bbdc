package throttleredis

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Claims of many goroutines and for many limits may be sent together, also if the server
// has lost the scripts of some of them.
func TestLimiters_workThroughAutoPipeline(t *testing.T) {
	c := redis.NewClient(client(t).Options())
	defer c.Close()
	pipe, err := c.AutoPipeline()
	require.NoError(t, err)
	s := newTestStore(t)
	s.Client = pipe
	const units = 40
	granted := map[string]*atomic.Int64{}
	var claims sync.WaitGroup
	for kind, l := range kinds(s, units) {
		n := new(atomic.Int64)
		granted[kind] = n
		for range 4 {
			claims.Go(func() { claimSome(t, l, "", units/2, n) })
		}
	}
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	claims.Wait()
	for kind, n := range granted {
		require.Equal(t, grantedOf(kind, units), n.Load(), kind)
	}
}

func TestStore_knowsThatAutoPipelineIgnoresDeadlines(t *testing.T) {
	c := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer c.Close()
	pipe, err := c.AutoPipeline()
	require.NoError(t, err)
	require.ErrorContains(t, (&Store{Client: pipe, Timeout: time.Second}).Validate(), "deadline")
	require.NoError(t, (&Store{Client: pipe}).Validate())
}
