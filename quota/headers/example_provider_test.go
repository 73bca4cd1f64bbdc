package headers_test

import (
	"fmt"

	"github.com/heed-go/heed/quota/headers"
)

// The built-in table describes APIs whose headers are incomplete. A row can be changed and used
// for another host.
func ExampleProviderByName() {
	github, ok := headers.ProviderByName("github")
	fmt.Println(ok, github.Hosts)

	reader := headers.Reader{Hosts: map[string]headers.Provider{"github.example.com": github}}
	fmt.Println(reader.Provider("github.example.com").Name)
	// Output:
	// true [api.github.com]
	// GitHub
}
