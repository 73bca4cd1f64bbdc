package debugpage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle/queue"
)

// Slow start and overload are neither stated by the server nor limits of the program.
func TestKnownLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		l    queue.LimitSnapshot
		want string
	}{
		"of the program": {queue.LimitSnapshot{Name: "default"}, own},
		"stated":         {queue.LimitSnapshot{Name: "api.test: quota", ServerImposed: true}, stated},
		"estimated":      {queue.LimitSnapshot{Name: "api.test: learned rate", ServerImposed: true, Estimated: true}, learned},
		"slow start":     {queue.LimitSnapshot{Name: "api.test: slow start", ServerImposed: true}, learned},
		"overload":       {queue.LimitSnapshot{Name: "api.test: overload", Estimated: true}, learned},
	} {
		require.Equal(t, tt.want, knownLimit(tt.l), name)
	}
}
