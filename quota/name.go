package quota

import (
	"context"

	"github.com/heed-go/heed/quota/internal/routes"
)

// WithName returns a context whose requests use the quota of a server that the program calls
// name, where the URL does not identify that quota: if it depends on a model or a deployment in
// the body of the request, or on a partition. Requests of one account with different names share
// no quota, unless the server states that a rejection concerns the whole account. Requests with
// one name share a quota, whatever their paths. An empty name means that the path identifies the
// quota. heed.RequestOptions has a field QuotaName for it.
func WithName(ctx context.Context, name string) context.Context {
	return routes.WithName(ctx, name)
}
