package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/heedtest"
)

func TestMeasure_oneRetry(t *testing.T) {
	for _, c := range testCases {
		t.Run(c.sdk, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := c.measure((*heedtest.Server).StartInMemory, false)
				require.NoError(t, m.err)
				require.Equal(t, 2, m.sent)
			})
		})
	}
}

// TestMeasure_asShipped checks what docs/with-sdks.md states of the defaults of the SDKs.
func TestMeasure_asShipped(t *testing.T) {
	retries := map[string]bool{"openai-go v3": true, "anthropic-sdk-go": true, "aws-sdk-go-v2": true, "aws-sdk-go-v2, NopRetryer": true}
	for _, c := range testCases {
		t.Run(c.sdk, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := c.measure((*heedtest.Server).StartInMemory, true)
				require.Equal(t, retries[c.sdk], m.err == nil, m.err)
				require.Equal(t, retries[c.sdk], m.sent == 2, m.sent)
			})
		})
	}
}

// TestPage_codeBuilds checks that the program of docs/with-sdks.md builds, and that its
// other functions are those of clients.go.
func TestPage_codeBuilds(t *testing.T) {
	page, err := os.ReadFile("../../docs/with-sdks.md")
	require.NoError(t, err)
	clients, err := os.ReadFile("clients.go")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```go\n")[1:]
	require.NotEmpty(t, blocks)
	for i, block := range blocks {
		code, _, found := strings.Cut(block, "```")
		require.True(t, found)
		if i > 0 {
			require.Contains(t, string(clients), code)
			continue
		}
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
		out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
