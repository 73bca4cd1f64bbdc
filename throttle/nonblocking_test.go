package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A remote is a limiter without a method NonBlocking.
type remote struct{ Limiter }

func (remote) NonBlocking() bool { return false }

func TestNonBlocking_wrappersForwardIt(t *testing.T) {
	local, far := NewTokenBucket(PerSecond(1)), remote{AllowAll}
	for _, tt := range []struct {
		l    Limiter
		want bool
	}{
		{local, true}, {AllowAll, true}, {DenyAll, true}, {far, false}, {struct{ Limiter }{local}, false},
		{AllOf(local, AllowAll), true}, {AllOf(local, far), false}, {AllOf(), true},
		{&Fallback{Primary: local, Secondary: AllowAll}, true}, {&Fallback{Primary: far, Secondary: local}, false},
	} {
		require.Equal(t, tt.want, IsNonBlocking(tt.l), "%T", tt.l)
	}
}
