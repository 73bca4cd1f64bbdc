module github.com/heed-go/heed

go 1.25.0
