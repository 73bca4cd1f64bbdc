package rules

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// specs has a Spec for each algorithm, with all numbers that a file can set.
var specs = map[string]Spec{
	"token_bucket":    throttle.Limit{Count: 10, Per: time.Minute, Burst: 5},
	"refill":          throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}},
	"leaky_bucket":    throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}, Queue: 3},
	"fixed_window":    throttle.FixedWindowConfig{Count: 10, Per: time.Minute},
	"calendar":        throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay, Zone: time.UTC},
	"sliding_log":     throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}, MinGap: time.Second},
	"sliding_counter": throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}},
	"sub_windows":     throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Parts: 6},
	"nginx":           throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5, Delay: 2},
	"concurrency":     throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Minute},
	"warm_up":         warmup.Config{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Period: time.Minute, ColdFactor: 2, Outage: time.Hour},
}

// TestDefinition_coversEveryField changes each field of a limit, and of its specs, and checks that
// the definition changes.
func TestDefinition_coversEveryField(t *testing.T) {
	notInFiles := []string{"Name", "InitialDeficit", "RefillBucketConfig.Anchor", "Split", "RoundDown"} // fields that a file cannot set
	for name, s := range specs {
		eachChange(reflect.ValueOf(s), func(field string, v reflect.Value) {
			if name == "fixed_window" && field == "Zone" {
				return // used by calendar windows only
			}
			if !slices.Contains(notInFiles, field) && !slices.Contains(notInFiles, v.Type().Name()+"."+field) {
				require.NotEqual(t, describe(s), describe(v.Interface().(Spec)), "%s %s", name, field)
			}
		})
	}
	notPrinted := []string{"ID", "Line", "Column", "Keyed", "Blocked", "Unlimited"} // the last three are visible in other fields
	l := Limit{Name: "a", Spec: specs["token_bucket"], Ban: &keyed.BanConfig{}, Active: []Period{{Spec: specs["token_bucket"]}}, Cost: 1, Keyed: true}
	eachChange(reflect.ValueOf(l), func(field string, v reflect.Value) {
		if !slices.Contains(notPrinted, field) {
			other := v.Interface().(Limit)
			require.NotEqual(t, l.definition(), other.definition(), field)
		}
	})
	p := Period{From: time.Hour, To: 2 * time.Hour, Days: EveryDay, Zone: time.UTC, Spec: specs["refill"]}
	eachChange(reflect.ValueOf(p), func(field string, v reflect.Value) {
		other := v.Interface().(Period)
		require.NotEqual(t, p.text(), other.text(), field)
	})
	blocked, unlimited := Limit{Blocked: true}, Limit{Unlimited: true}
	require.NotEqual(t, blocked.definition(), unlimited.definition())
	s := keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Minute}
	eachChange(reflect.ValueOf(s), func(field string, v reflect.Value) {
		other := v.Interface().(keyed.BanConfig)
		require.NotEqual(t, banText(&s), banText(&other), field)
	})
}

// eachChange calls visit with copies of a struct, in each of which one field has changed. For a
// nested struct it changes each of its fields.
func eachChange(s reflect.Value, visit func(field string, v reflect.Value)) {
	for i := range s.NumField() {
		f := s.Type().Field(i)
		with := reflect.New(s.Type()).Elem()
		with.Set(s)
		if !f.IsExported() {
			continue
		}
		if f.Type == reflect.TypeFor[throttle.Limit]() {
			eachChange(s.Field(i), func(field string, v reflect.Value) {
				with.Field(i).Set(v)
				visit(field, with)
			})
			continue
		}
		at := with.Field(i)
		switch at.Interface().(type) {
		case time.Duration:
			at.SetInt(at.Int() + int64(7*time.Second))
		case int64, int:
			at.SetInt(at.Int() + 7)
		case Weekdays:
			at.SetUint(1)
		case float64:
			at.SetFloat(at.Float() + 1)
		case bool:
			at.SetBool(!at.Bool())
		case string:
			at.SetString(at.String() + "x")
		case throttle.Alignment:
			at.Set(reflect.ValueOf(throttle.AtFirst))
		case *time.Location:
			at.Set(reflect.ValueOf(time.FixedZone("elsewhere", 3600)))
		case time.Time:
			at.Set(reflect.ValueOf(time.Unix(7, 0)))
		default:
			if at.Kind() == reflect.Slice {
				at.Set(reflect.Append(at, reflect.New(at.Type().Elem()).Elem()))
			} else if at.Kind() == reflect.Interface {
				at.Set(reflect.ValueOf(Spec(throttle.FixedWindowConfig{Count: 3, Per: time.Second})))
			} else if at.Kind() == reflect.Pointer {
				at.Set(reflect.Zero(at.Type()))
			}
		}
		visit(f.Name, with)
	}
}

// doubled returns s with another count.
func doubled(s Spec) Spec {
	v := reflect.New(reflect.TypeOf(s)).Elem()
	v.Set(reflect.ValueOf(s))
	f := v.FieldByName("Count")
	if l := v.FieldByName("Limit"); l.IsValid() {
		f = l.FieldByName("Count")
	}
	if !f.IsValid() {
		f = v.FieldByName("Rate")
	}
	f.SetInt(f.Int() * 2)
	return v.Interface().(Spec)
}

// TestResize_matchesResizable resizes each limiter whose Spec is resizable, and checks that units
// that were taken stay taken.
func TestResize_matchesResizable(t *testing.T) {
	ctx := context.Background()
	fixed := map[string]bool{"nginx": true}
	for name, s := range specs {
		for other, o := range specs {
			same := name == other && !fixed[name]
			require.Equal(t, same, resizable(s, o), "%s to %s", name, other)
		}
		if fixed[name] {
			continue
		}
		require.True(t, resizable(s, doubled(s)), name)
		l := newLimiter(s, nil)
		now := time.Now()
		first, err := l.Reserve(ctx, throttle.Claim{Now: now})
		require.NoError(t, err)
		require.True(t, first.OK, name)
		require.NoError(t, resize(l, doubled(s)), name)
		d, err := l.Reserve(ctx, throttle.Claim{Now: now, DryRun: true})
		require.NoError(t, err)
		require.Less(t, d.Remaining, d.Limit, "%s: units that were taken stay taken", name)
		require.GreaterOrEqual(t, d.Limit, first.Limit, name)
	}
}
