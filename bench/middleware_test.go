package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every side does the work that its figures describe.
func TestMiddlewares_doTheSameWork(t *testing.T) {
	for _, m := range Middlewares() {
		require.Equal(t, 3000, serve(m, ample)(3000), m.Name)
		require.Zero(t, serve(m, 1)(3000), m.Name)
		require.Equal(t, 10, overServer(m)(10), m.Name)
		granted, rejected := m.HeaderCounts()
		require.GreaterOrEqual(t, granted, 3, m.Name)
		require.GreaterOrEqual(t, rejected, 3, m.Name)
	}
}
