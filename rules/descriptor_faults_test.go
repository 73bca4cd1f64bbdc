package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse_reportsADescriptorOnce checks faults after which the rest of a descriptor is not
// read.
func TestParse_reportsADescriptorOnce(t *testing.T) {
	deep, tail := "domain: d\n", ""
	for range maxDepth {
		deep, tail = deep+"descriptors: [{key: k, ", "}]"+tail
	}
	for _, text := range []string{deep + "descriptors: [{value: x}, {value: y}]" + tail, "domain: d\ndescriptors: [{value: x, rate_limit: {unlimited: true}}]"} {
		_, err := Parse([]byte(text), Config{})
		require.Error(t, err)
		require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 1, "%v", err)
	}
}
