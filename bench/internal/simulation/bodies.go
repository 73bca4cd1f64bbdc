package simulation

import (
	"fmt"
	"net/http"
	"strings"
)

// A Gateway writes the bodies of error responses as one kind of server or proxy does.
type Gateway struct {
	Name        string
	contentType string
	texts       map[int]string          // by status
	text        func(status int) string // of other statuses
}

// Body returns the body of a response and its Content-Type, which is empty if the body is.
func (g *Gateway) Body(status int) (body, contentType string) {
	body, ok := g.texts[status]
	if !ok && g.text != nil {
		body = g.text(status)
	}
	if body == "" {
		return "", ""
	}
	return body, g.contentType
}

// Gateways are the known gateways. None of their bodies states when a request may be sent
// again.
var Gateways = []*Gateway{
	{"aws", "application/json", map[int]string{
		403: `{"message":"Forbidden"}`,
		500: `{"message": "Internal server error"}`,
	}, quoted(`{"message":"%s"}`)},
	{"nginx", "text/html", map[int]string{503: nginxPage("503 Service Temporarily Unavailable")},
		func(status int) string { return nginxPage(line(status)) }},
	{"openai", "application/json", map[int]string{
		403: `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}`,
		429: `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
		503: `{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":null}}`,
	}, quoted(`{"error":{"message":"%s","type":"server_error","param":null,"code":null}}`)},
	{"code", "application/json", map[int]string{429: `{"error":{"code":"rate_limit_exceeded"}}`},
		func(status int) string {
			return fmt.Sprintf(`{"error":{"code":%q}}`, strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_"))
		}},
	{"envoy", "text/plain", map[int]string{
		403: "RBAC: access denied",
		429: "local_rate_limited",
		503: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
	}, nil},
	{"anthropic", "application/json", map[int]string{
		403: anthropic("permission_error", "Your API key does not have permission to use the specified resource."),
		429: anthropic("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
		503: anthropic("overloaded_error", "Overloaded"),
		529: anthropic("overloaded_error", "Overloaded"),
	}, func(int) string { return anthropic("api_error", "Internal server error") }},
	{"google", "application/json; charset=UTF-8", map[int]string{
		403: google(403, "The caller does not have permission", "PERMISSION_DENIED"),
		429: google(429, "Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED"),
		503: google(503, "The service is currently unavailable.", "UNAVAILABLE"),
	}, func(status int) string { return google(status, "Internal error encountered.", "INTERNAL") }},
	{"kubernetes", "application/json", map[int]string{
		403: kubernetes(403, "Forbidden", `pods is forbidden: User \"app\" cannot list resource \"pods\"`),
		429: kubernetes(429, "TooManyRequests", "the server has received too many requests and has asked us to try again later"),
		503: kubernetes(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
	}, func(status int) string {
		return kubernetes(status, "InternalError", "Internal error occurred: context canceled")
	}},
	{"haproxy", "text/html", map[int]string{
		403: haproxyPage(403, "Request forbidden by administrative rules."),
		429: haproxyPage(429, "You have sent too many requests in a given amount of time."),
		503: haproxyPage(503, "No server is available to handle this request."),
	}, func(status int) string { return haproxyPage(status, "An internal server error occurred.") }},
	{"cloudflare", "text/plain; charset=UTF-8", map[int]string{403: "error code: 1020", 429: "error code: 1015"},
		func(status int) string { return fmt.Sprintf("error code: %d", status) }},
	{"problem", "application/problem+json", nil, func(status int) string {
		return fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d}`, http.StatusText(status), status)
	}},
	{"django", "application/json", map[int]string{
		403: `{"detail":"You do not have permission to perform this action."}`,
		429: `{"detail":"Request was throttled."}`,
	}, quoted(`{"detail":"%s"}`)},
	{"express", "text/html; charset=utf-8", map[int]string{429: "Too many requests, please try again later."}, http.StatusText},
	{"go", "text/plain; charset=utf-8", nil, func(status int) string { return http.StatusText(status) + "\n" }},
	{"empty", "", nil, nil},
}

// gatewayNamed returns the gateway with a name, which must exist.
func gatewayNamed(name string) *Gateway {
	for _, g := range Gateways {
		if g.Name == name {
			return g
		}
	}
	panic("simulation: no gateway " + name)
}

// quoted returns a text that contains the text of the status.
func quoted(format string) func(int) string {
	return func(status int) string { return fmt.Sprintf(format, http.StatusText(status)) }
}

func line(status int) string { return fmt.Sprintf("%d %s", status, http.StatusText(status)) }

func nginxPage(line string) string {
	return fmt.Sprintf("<html>\r\n<head><title>%s</title></head>\r\n<body>\r\n<center><h1>%[1]s</h1></center>\r\n<hr><center>nginx/1.24.0</center>\r\n</body>\r\n</html>\r\n", line)
}

func haproxyPage(status int, text string) string {
	return fmt.Sprintf("<html><body><h1>%s</h1>\n%s\n</body></html>\n", line(status), text)
}

func anthropic(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
}

func google(status int, message, name string) string {
	return fmt.Sprintf("{\n  \"error\": {\n    \"code\": %d,\n    \"message\": %q,\n    \"status\": %q\n  }\n}\n", status, message, name)
}

func kubernetes(status int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","reason":%q,"code":%d}`, message, reason, status)
}
