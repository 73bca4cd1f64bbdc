package throttlehttp_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttlehttp"
)

// A handler around the middleware may add a value to any header of a rejection. No other
// header changes, although the values share memory.
func TestRejection_headersAreIndependent(t *testing.T) {
	w := httptest.NewRecorder()
	throttlehttp.Rejection{}.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	h := w.Header()
	want := h.Clone()
	for name := range want {
		_ = append(h[name], "more")
	}
	for name, values := range h {
		require.True(t, slices.Equal(want[name], values), name)
	}
	require.Equal(t, http.StatusTooManyRequests, w.Code)
}
