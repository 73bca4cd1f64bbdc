module github.com/heed-go/heed/bench

go 1.26.0

require (
	github.com/heed-go/heed v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/time v0.15.0
)

require (
	github.com/PuerkitoBio/rehttp v1.4.0 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/heed-go/heed => ../
