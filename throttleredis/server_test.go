package throttleredis

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// shared is a client of the redis-server that the tests of this package share; nil if none
// is installed.
var shared *redis.Client

func TestMain(m *testing.M) {
	os.Exit(withServer(func() int {
		defer threeNodes.program.End()
		return m.Run()
	}))
}

// A sharedCluster is a cluster of three servers that the tests which do not disturb it share: each has a
// prefix of its own. A cluster takes two seconds to begin.
type sharedCluster struct {
	mu      sync.Mutex
	addrs   []string
	program redistest.Program // ends the servers
}

var threeNodes sharedCluster

// start returns the addresses of the servers, which the first test that calls it starts.
func (c *sharedCluster) start(t testing.TB) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.addrs == nil {
		c.addrs = redistest.Addrs(redistest.StartCluster(outlivingT{t, &c.program}, 3))
	}
	return c.addrs
}

// An outlivingT is a test that starts a cluster which ends after all tests.
type outlivingT struct {
	testing.TB
	program *redistest.Program
}

// Cleanup implements redistest.T.
func (t outlivingT) Cleanup(f func()) { t.program.Cleanup(f) }

// withServer runs f with a separate redis-server that listens on a Unix socket, which does
// not need a free port.
func withServer(f func() int) int {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return f()
	}
	dir, err := os.MkdirTemp("", "heed")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir)
	ended, err := redistest.StartProcess(cmd)
	if err != nil {
		panic(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	shared = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	defer shared.Close()
	for deadline := time.Now().Add(30 * time.Second); shared.Ping(context.Background()).Err() != nil && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	return f()
}

// client returns the client of the shared server. Without a server it skips the test, or
// fails it in CI.
func client(t testing.TB) *redis.Client {
	if shared == nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
	return shared
}

var prefixes atomic.Int64

// newTestStore returns a store with a unique prefix.
func newTestStore(t testing.TB) *Store {
	return &Store{Client: client(t), Prefix: "t" + strconv.FormatInt(prefixes.Add(1), 10)}
}

func TestStore_needsAClientThatObservesDeadlines(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	require.ErrorContains(t, (&Store{}).Validate(), "Client is nil")
	require.ErrorContains(t, (&Store{Client: (*redis.Client)(nil), Timeout: 1}).Validate(), "Client is nil")
	require.ErrorContains(t, (&Store{Client: c, Prefix: "{x}"}).Validate(), "brace")
	require.ErrorContains(t, (&Store{Client: c, Timeout: -1}).Validate(), "negative")
	require.ErrorContains(t, (&Store{Client: c, Timeout: 1}).Validate(), "ContextTimeoutEnabled")
	require.NoError(t, (&Store{Client: c}).Validate())
}
