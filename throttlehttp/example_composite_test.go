package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed/throttlehttp"
)

func ExampleComposite() {
	perPage := throttlehttp.Composite(throttlehttp.IP{}.Key, throttlehttp.Method, throttlehttp.Path)
	fmt.Println(perPage(httptest.NewRequest(http.MethodPost, "/login/?next=/", nil)))
	// Output:
	// join:12:ip:192.0.2.111:method:POST11:path:/login true
}
