package heed

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// WithOptions keeps each option that ctx carries, unless the new one is set. The fields are found by reflection, so that none
// can be forgotten.
func TestWithOptions_keepsWhatIsNotSet(t *testing.T) {
	values := func(n int) RequestOptions {
		var o RequestOptions
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(n))
			case reflect.String:
				f.SetString(strings.Repeat("x", n))
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]int64{"tokens": int64(n)}))
			default:
				t.Fatalf("%s: a new kind of option", v.Type().Field(i).Name)
			}
		}
		return o
	}
	all, other := values(1), values(2)
	ctx := WithOptions(t.Context(), all)
	require.Equal(t, all, OptionsFrom(ctx))
	require.Equal(t, all, OptionsFrom(WithOptions(ctx, RequestOptions{})))
	require.Equal(t, other, OptionsFrom(WithOptions(ctx, other)))
	require.Equal(t, RequestOptions{}, OptionsFrom(t.Context()))
	for i := range reflect.TypeFor[RequestOptions]().NumField() {
		one, want := RequestOptions{}, all
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(other).Field(i))
		reflect.ValueOf(&want).Elem().Field(i).Set(reflect.ValueOf(other).Field(i))
		require.Equal(t, want, OptionsFrom(WithOptions(ctx, one)))
	}
	require.NotEqual(t, quota.WithName(t.Context(), "xx"), WithOptions(ctx, RequestOptions{QuotaName: "xx"}))
}

// A tenant with three times the weight gets three times the units of a limit while both wait.
func TestRequestOptions_weight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sent, mu := map[string]int{}, sync.Mutex{}
		tr := &Transport{
			Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)),
			Trace: &Trace{AttemptStart: func(r *http.Request, _ AttemptInfo) {
				mu.Lock()
				defer mu.Unlock()
				sent[OptionsFrom(r.Context()).Tenant]++
			}},
		}
		var all sync.WaitGroup
		for tenant, weight := range map[string]int{"large": 3, "small": 0, "third": -7} {
			ctx := WithOptions(WithOptions(ctx, RequestOptions{Tenant: tenant}), RequestOptions{Weight: weight})
			for range 200 {
				all.Go(func() { tr.RoundTrip(request(t, "GET", "").WithContext(ctx)) })
			}
		}
		time.Sleep(100 * time.Second)
		cancel()
		all.Wait()
		require.InDelta(t, 60, sent["large"], 2)
		require.InDelta(t, 20, sent["small"], 2)
		require.InDelta(t, 20, sent["third"], 2)
	})
}
