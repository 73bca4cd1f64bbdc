package credentials

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The credentials of a request are written so that no two sets of them are equal: each with its name and
// its length, in an order that does not depend on that of the header fields. Processes of two releases
// share an account during a deployment, so the form is the same in all of them.
func TestJoin_writesCredentialsUnambiguously(t *testing.T) {
	for _, tt := range []struct {
		url    string
		header []string
		params []string
		want   string
	}{
		{"https://api.test/?q=1", nil, nil, ""},
		{"https://api.test/", []string{"Authorization", "Bearer one"}, nil, "Authorization\x00\x0aBearer one"},
		{"https://api.test/?api_key=k&apikey=", []string{"X-Api-Key", "two", "Authorization", "one"}, nil, "Authorization\x00\x03one" + "X-Api-Key\x00\x03two" + "query\x00\x01k"},
		{"https://ann:secret@api.test/", nil, nil, "password\x00\x06secret" + "user\x00\x03ann"},
		{"https://ann@api.test/", nil, nil, "password\x00\x00" + "user\x00\x03ann"},
		{"https://ann:secret@api.test/", []string{"Authorization", "one"}, nil, "Authorization\x00\x03one"},
		{"https://api.test/?q=1&key=k", nil, []string{"token", "key"}, "query\x00\x01k"},
		{"https://api.test/?q=1&key=k", nil, []string{"token"}, ""},
		{"https://api.test/", []string{"Authorization", ""}, nil, ""},
	} {
		req, err := http.NewRequest(http.MethodGet, tt.url, http.NoBody)
		require.NoError(t, err)
		for i := 0; i < len(tt.header); i += 2 {
			req.Header.Set(tt.header[i], tt.header[i+1])
		}
		got := Join(func(found func(name, value string)) { Of(req, tt.params, found) })
		require.Equal(t, tt.want, got, "%s %v", tt.url, tt.header)
	}
}
