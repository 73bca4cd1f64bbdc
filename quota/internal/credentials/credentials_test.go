package credentials

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
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
		got := Join(func(found func(name, value string)) { Of(req, &headers.Provider{AccountParams: tt.params}, found) })
		require.Equal(t, tt.want, got, "%s %v", tt.url, tt.header)
	}
}

// Schemes that sign each request send another Authorization with each, but the same identifier of a key. A URL
// that the same key has signed has the same account.
func TestOf_schemesThatSignEachRequest(t *testing.T) {
	of := func(url, authorization string) string {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		return Join(func(found func(name, value string)) { Of(req, nil, found) })
	}
	for value, want := range map[string]string{
		"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=%d": "AKID",
		"AWS4-HMAC-SHA256 SignedHeaders=host,Credential=AKID/20260101/us-east-1/s3/aws4_request,Signature=%d":   "AKID",
		"AWS4-ECDSA-P256-SHA256 Credential=AKID/20260101/s3/aws4_request, Signature=%d":                         "AKID",
		"AWS AKID:%d": "AKID",
		"AWS3-HTTPS AWSAccessKeyId=AKID,Algorithm=HmacSHA256,Signature=%d": "AKID",
		"GOOG1 AKID:%d": "AKID",
		"GOOG4-HMAC-SHA256 Credential=AKID/20260101/auto/storage/goog4_request, SignedHeaders=host, Signature=%d": "AKID",
		"GOOG4-RSA-SHA256 Credential=a@b.test/20260101/auto/storage/goog4_request, Signature=%d":                  "a@b.test",
		"SharedKey account:%d":                                                                         "account",
		"SharedKeyLite account:%d":                                                                     "account",
		"SharedAccessSignature sr=x&sig=%d&se=1&skn=key":                                               "key",
		"SharedAccessSignature sr=hub.test%%2Fdevices%%2F7&sig=%d&se=1":                                "hub.test%2Fdevices%2F7",
		`Signature keyId="tenant/user/fp",algorithm="rsa-sha256",headers="date",signature="%d"`:        "tenant/user/fp",
		`Signature version="1", keyId="a b,c", signature="%d"`:                                         "a b,c",
		"TC3-HMAC-SHA256 Credential=AKID/2026-01-01/cvm/tc3_request, SignedHeaders=host, Signature=%d": "AKID",
		"ACS3-HMAC-SHA256 Credential=AKID,SignedHeaders=host,Signature=%d":                             "AKID",
		"SDK-HMAC-SHA256 Access=AKID, SignedHeaders=host, Signature=%d":                                "AKID",
		"EG1-HMAC-SHA256 client_token=akab-c;access_token=akab-a;timestamp=t;nonce=%d;signature=s":     "akab-c",
		"HMAC-SHA256 Credential=AKID/20260101/cn/iam/request, SignedHeaders=host, Signature=%d":        "AKID",
		"HMAC-SHA256 Credential=AKID&SignedHeaders=host&Signature=%d":                                  "AKID",
		"HMAC-SHA256 SignedHeaders=date;host;x-ms-content-sha256&Signature=%d":                         "HMAC-SHA256",
		`hmac username="ann/b", algorithm="hmac-sha256", headers="date", signature="%d"`:               "ann/b",
		"OSS AKID:%d": "AKID",
		"OSS2 AccessKeyId:AKID,AdditionalHeaders:host,Signature:%d":                       "AKID",
		"OSS4-HMAC-SHA256 Credential=AKID/20260101/cn/oss/aliyun_v4_request,Signature=%d": "AKID",
		"q-sign-algorithm=sha1&q-ak=AKID&q-sign-time=%d;2&q-signature=s":                  "AKID",
		"bce-auth-v1/AKID/2026-01-01T00:00:%dZ/1800//s":                                   "AKID",
		`Digest username="Ann Lee", nonce="%d", uri="/x"`:                                 "Ann Lee",
		`Hawk id="a", ts="%d"`:            "a",
		`MAC id="a", nonce="%d", mac="m"`: "a",
		`acquia-http-hmac realm="r",id="a",timestamp="1",nonce="%d",version="2.0"`:        "a",
		"EMS-HMAC-SHA256 Credential=AKID/20260101/eu/x, SignedHeaders=host, Signature=%d": "AKID",
		"JDCLOUD2-HMAC-SHA256 Credential=AKID/20260101/cn/x, Signature=%d":                "AKID",
		"UCloud AKID:%d": "AKID",
		"OBS AKID:%d":    "AKID",
		"NOS AKID:%d":    "AKID",
		"KSS AKID:%d":    "AKID",
		"ACS3-RSA-SHA256 Credential=AKID,SignedHeaders=host,Signature=%d": "AKID",
		"APIAuth AKID:%d":             "AKID",
		"APIAuth-HMAC-SHA256 AKID:%d": "AKID",
		"hmac AKID:%d":                "AKID",
		"HMAC AKID:%d":                "AKID",
		"VERACODE-HMAC-SHA-256 id=AKID,ts=%d,nonce=n,sig=s":               "AKID",
		"type%%3dmaster%%26ver%%3d1.0%%26sig%%3d%d%%3d":                   "type%3Dmaster%26",
		"type%%3Dmaster%%26ver%%3D1.0%%26sig%%3D%d":                       "type%3Dmaster%26",
		`OAuth oauth_consumer_key="k", oauth_nonce="%d", oauth_token="t"`: "t",
		`OAuth oauth_consumer_key="k", oauth_nonce="%d"`:                  "k",
	} {
		for n := range 3 {
			got := of("https://api.test/", fmt.Sprintf(value, n+10))
			require.Equal(t, of("https://api.test/", "Placeholder")[:len("Authorization")+1], got[:len("Authorization")+1], value)
			require.Equal(t, want, got[len("Authorization")+2:], value)
		}
	}
	for _, token := range []string{ // without an identifier no two keys are one account
		"HMAC-SHA256 Signature=1", "HMAC-SHA256 key=a,sig=b:c", "hmac 1", "ACS3-RSA-SHA256 Signature=1", "Signature signature=1",
		"AWS3-HTTPS Signature=1", "SharedAccessSignature sig=1", "type%3Dresource%26ver%3D1%26sig%3D1", "type%3Dmaster%26",
	} {
		require.Equal(t, token, of("https://api.test/", token)[len("Authorization")+2:], "a token")
	}
	for _, token := range []string{"Bearer a:b", "Basic YTpi", "Token a:b", "Bearer eyJ.Signature=1", "a:b", "AWSX a:b"} {
		require.Equal(t, token, of("https://api.test/", token)[len("Authorization")+2:], "a token")
	}
	signed := of("https://api.test/", "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=1")
	for _, query := range []string{
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=1",
		"X-Amz-Credential=AKID%2f20260102%2fus-east-1%2fs3%2faws4_request&X-Amz-Signature=2", "X-Amz-Credential=AKID/20260101/x&X-Amz-Signature=3",
		"X-Goog-Credential=AKID%2F20260101&X-Goog-Signature=1", "AWSAccessKeyId=AKID&Signature=1&Expires=7", "GoogleAccessId=AKID&Signature=1",
		"OSSAccessKeyId=AKID&Signature=1", "x-oss-credential=AKID%2F20260101&x-oss-signature=1", "AccessKeyId=AKID&Signature=1",
		"Policy=p&Signature=1&Key-Pair-Id=AKID", "q-ak=AKID&q-signature=1", "sr=x&sig=1&se=1&skn=AKID", "X-Tos-Credential=AKID%2F1", "X-Credential=AKID%2F1&X-Signature=2",
	} {
		require.Equal(t, signed, of("https://api.test/x?"+query, ""), query)
	}
	require.Empty(t, of("https://a.blob.test/x?sv=2024-01-01&sig=1", ""), "the host is the account")
}

// A Provider may list headers, parameters and the beginning of a path segment that identify the account.
func TestOf_placesOfAProvider(t *testing.T) {
	p := &headers.Provider{AccountHeaders: []string{"X-Acme-Key"}, AccountParams: []string{"Token"}, AccountSegment: "bot"}
	for url, want := range map[string]string{
		"https://api.test/bot1:secret/send?token=t&x=1": "X-Acme-Key\x00\x01kpath\x00\x081:secretquery\x00\x01t",
		"https://api.test/file/bot1:secret/a.jpg":       "X-Acme-Key\x00\x01kpath\x00\x081:secret",
		"https://api.test/x?token=t&ToKEN=u":            "X-Acme-Key\x00\x01kquery\x00\x01tquery\x00\x01u",
		"https://api.test/x?to\u212aen=t":               "X-Acme-Key\x00\x01k",
		"https://api.test/bot/send":                     "X-Acme-Key\x00\x01k",
		"https://api.test/robot1/send":                  "X-Acme-Key\x00\x01k",
		"https://api.test/x/bot1":                       "X-Acme-Key\x00\x01k",
		"https://api.test":                              "X-Acme-Key\x00\x01k",
		"https://api.test/bot1":                         "X-Acme-Key\x00\x01kpath\x00\x011",
	} {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Acme-Key", "k")
		require.Equal(t, want, Join(func(found func(name, value string)) { Of(req, p, found) }), url)
	}
}
