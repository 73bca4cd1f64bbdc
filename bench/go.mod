module github.com/heed-go/heed/bench

go 1.26.0

require (
	github.com/heed-go/heed v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/time v0.15.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/heed-go/heed => ../
