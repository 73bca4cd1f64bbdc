package closenotify_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/closenotify"
)

// notifier is a ResponseWriter whose channel can be compared.
type notifier struct {
	http.ResponseWriter
	gone chan bool
}

func (n notifier) CloseNotify() <-chan bool { return n.gone }

func TestOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := notifier{httptest.NewRecorder(), make(chan bool)}
		require.Equal(t, (<-chan bool)(w.gone), closenotify.Of(ctx, w))
		gone := closenotify.Of(ctx, httptest.NewRecorder())
		synctest.Wait()
		require.Empty(t, gone)
		cancel()
		require.True(t, <-gone)
	})
}
