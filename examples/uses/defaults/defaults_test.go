package defaults

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// TestDefaults_withHeed checks that each SDK succeeds with heed beneath, with one retry.
func TestDefaults_withHeed(t *testing.T) {
	for _, c := range testCases {
		t.Run(c.sdk, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent, err := c.measure(t, false)
				require.NoError(t, err)
				require.Equal(t, 2, sent)
			})
		})
	}
}

// TestDefaults_asShipped checks what docs/with-sdks.md states of the defaults of the SDKs.
func TestDefaults_asShipped(t *testing.T) {
	for _, c := range testCases {
		t.Run(c.sdk, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent, err := c.measure(t, true)
				require.Equal(t, c.retries, err == nil, err)
				require.Equal(t, c.retries, sent == 2, sent)
			})
		})
	}
}

// measure makes the call of c to a server that rejects the first request. It returns how many
// requests the server received.
func (c testCase) measure(t *testing.T, shipped bool) (sent int, err error) {
	server := &heedtest.Server{Respond: heedtest.Script(c.rejection, c.success)}
	server.StartInMemory()
	defer server.Close()
	base := scenario.Base(server)
	defer base.CloseIdleConnections()
	err = c.call(t.Context(), base, shipped)
	return len(server.Requests()), err
}
