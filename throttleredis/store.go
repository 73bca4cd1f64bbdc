package throttleredis

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// A Store is where limiters keep their state. Its methods make them. The fields must not
// change once the first is made.
type Store struct {
	Client redis.Scripter // a Client, a Ring, a ClusterClient, a failover client, or the AutoPipeline of one; must be set
	Prefix string         // of all keys, for programs that share a Redis; "": "heed"; without braces

	// Timeout is how long Reserve, Cancel and Observe may take. The client must
	// heed it: set ContextTimeoutEnabled in its options. 0: as long as ctx and the
	// options of the client allow.
	Timeout time.Duration

	// Clock is what Decision.At is read from; decisions are made by the server's.
	// Nil: the system clock.
	Clock throttle.Clock

	// useLocalClock says, in tests, to decide by the local reading of the clock.
	useLocalClock bool
}

// Validate returns an error that says what to change if s can never work.
func (s *Store) Validate() error {
	switch {
	case s.Client == nil:
		return fmt.Errorf("throttleredis: store %q: Client is nil: set it to a client of go-redis", s.Prefix)
	case strings.ContainsAny(s.Prefix, "{}"):
		return fmt.Errorf("throttleredis: store %q: Prefix has a brace, which would decide on the slot of a cluster: leave it out", s.Prefix)
	case s.Timeout < 0:
		return fmt.Errorf("throttleredis: store %q: Timeout is %v: it must not be negative", s.Prefix, s.Timeout)
	case s.Timeout > 0 && ignoresDeadlines(s.Client):
		return fmt.Errorf("throttleredis: store %q: Timeout is %v, but the client does not look at deadlines: set ContextTimeoutEnabled in its options, and for an AutoPipeline no Timeout but that of a Fallback", s.Prefix, s.Timeout)
	}
	return nil
}

// ignoresDeadlines reports whether a client is known not to heed the deadline of a context.
func ignoresDeadlines(c redis.Scripter) bool {
	switch c := c.(type) {
	case *redis.AutoPipeliner:
		return true
	case *redis.Client:
		return !c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return !c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return !c.Options().ContextTimeoutEnabled
	}
	return false
}

func (s *Store) prefix() string {
	if s.Prefix == "" {
		return "heed"
	}
	return s.Prefix
}
