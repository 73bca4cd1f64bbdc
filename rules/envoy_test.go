package rules_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle/queue"
)

// hour is a time at which windows of all units up to an hour begin.
var hour = time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)

// TestEnvoy_documentationLoadsAsItIs loads all examples of the documentation of
// envoyproxy/ratelimit and of its examples folder, with two words removed.
func TestEnvoy_documentationLoadsAsItIs(t *testing.T) {
	files, err := filepath.Glob("testdata/envoy/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 18)
	for _, file := range files {
		set, err := rules.Load(file, rules.Config{})
		if strings.HasSuffix(file, "service_example.yaml") {
			require.ErrorContains(t, err, `rules: 89:5: "quota_mode": `)
			require.ErrorContains(t, err, `rules: 93:5: "metadata": `)
			continue
		}
		require.NoError(t, err, file)
		require.NotEmpty(t, set.All(), file)
	}
}

// grants returns how many of n tickets for descriptors are granted at hour.
func grants(t *testing.T, set *rules.Set, n int, ds ...rules.Descriptor) (granted int) {
	for range n {
		var ticket queue.Ticket
		set.Add(&ticket, ds...)
		d, err := ticket.Reserve(context.Background(), hour)
		require.NoError(t, err)
		if d.OK {
			granted++
		}
	}
	return granted
}

func example(t *testing.T, name string) *rules.Set {
	set, err := rules.Load("testdata/envoy/"+name, rules.Config{})
	require.NoError(t, err)
	return set
}

func entries(pairs ...string) (d rules.Descriptor) {
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, rules.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// TestEnvoy_decidesAsDocumented checks the decisions that the documentation describes.
func TestEnvoy_decidesAsDocumented(t *testing.T) {
	const all = 1000 // number of claims
	for _, tt := range []struct {
		file string
		ask  []rules.Descriptor
		want int
	}{
		{"example1.yaml", []rules.Descriptor{entries("database", "users")}, 500},
		{"example1.yaml", []rules.Descriptor{entries("database", "other")}, all},
		{"example2.yaml", []rules.Descriptor{entries("message_type", "marketing", "to_number", "2061")}, 5},
		{"example2.yaml", []rules.Descriptor{entries("to_number", "2061")}, 100},
		{"example2.yaml", []rules.Descriptor{entries("message_type", "marketing", "to_number", "2061"), entries("to_number", "2061")}, 5},
		{"example3.yaml", []rules.Descriptor{entries("remote_address", "50.0.0.1")}, 10},
		{"example3.yaml", []rules.Descriptor{entries("remote_address", "50.0.0.5")}, 0},
		{"example4.yaml", []rules.Descriptor{entries("key", "value", "subkey", "subvalue")}, all},
		{"example4.yaml", []rules.Descriptor{entries("key", "value")}, 300},
		{"example4b.yaml", []rules.Descriptor{entries("key", "value", "subkey", "subvalue")}, 300},
		{"example5.yaml", []rules.Descriptor{entries("ldap", "")}, all},
		{"example5.yaml", []rules.Descriptor{entries("azure", "")}, 100},
		{"example6.yaml", []rules.Descriptor{entries("service", "auth-service", "user", "user-a")}, all},
		{"example6.yaml", []rules.Descriptor{entries("service", "auth-service", "user", "user-b")}, 20},
		{"example7.yaml", []rules.Descriptor{entries("key_1", "value_1", "user", "bkthomps")}, 5},
		{"example7.yaml", []rules.Descriptor{entries("key_2", "value_2", "user", "bkthomps")}, 10},
		{"example7.yaml", []rules.Descriptor{entries("key_1", "value_1", "user", "bkthomps"), entries("key_2", "value_2", "user", "bkthomps")}, 10},
		{"example8.yaml", []rules.Descriptor{entries("key1", "unspecified_value")}, 10},
		{"example8.yaml", []rules.Descriptor{entries("key1", "value1")}, 20},
		{"example9.yaml", []rules.Descriptor{entries("key1", "valueXYZ")}, 20},
		{"example9.yaml", []rules.Descriptor{entries("key1", "other")}, all},
		{"example9b.yaml", []rules.Descriptor{entries("path", "/api/user-id/action")}, 20},
		{"example9b.yaml", []rules.Descriptor{entries("path", "/api/123/other")}, all},
		{"example9c.yaml", []rules.Descriptor{entries("route", "/api/v1/resource/123/action")}, 20},
	} {
		require.Equal(t, tt.want, grants(t, example(t, tt.file), all, tt.ask...), "%s %v", tt.file, tt.ask)
	}
}

func TestEnvoy_eachValueHasItsOwnCount(t *testing.T) {
	set := example(t, "example2.yaml")
	require.Equal(t, 100, grants(t, set, 200, entries("to_number", "1")))
	require.Equal(t, 100, grants(t, set, 200, entries("to_number", "2")))
	require.Equal(t, 0, grants(t, set, 200, entries("to_number", "1")))
}

func TestEnvoy_sharedThresholdIsOneCount(t *testing.T) {
	set := example(t, "example11.yaml")
	require.Equal(t, 5, grants(t, set, 5, entries("files", "files/a.pdf")))
	require.Equal(t, 5, grants(t, set, 6, entries("files", "files/b.csv")))
	require.Equal(t, 10, grants(t, set, 20, entries("files_no_share", "files_no_share/a")))
	require.Equal(t, 10, grants(t, set, 20, entries("files_no_share", "files_no_share/b")))
}

// TestEnvoy_replacedLimitKeepsItsUnits checks that requests under the replacing limit take no
// units of the replaced one.
func TestEnvoy_replacedLimitKeepsItsUnits(t *testing.T) {
	set := example(t, "example7.yaml")
	one, two := entries("key_1", "value_1", "user", "bkthomps"), entries("key_2", "value_2", "user", "bkthomps")
	require.Equal(t, 10, grants(t, set, 20, one, two))
	require.Equal(t, 5, grants(t, set, 20, one))
}
